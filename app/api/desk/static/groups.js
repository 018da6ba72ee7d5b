// Groups of the traffic: how many of their verdicts are wrong, among labelled pairs and in audits.
import { html } from "./ui.js";
import { between, count, criterion, evidence, moment, percent } from "./format.js";

/** The labelled pairs of each group under the criteria in use. @param {{ rows: any[] }} props */
export function GroupRows({ rows }) {
  if (rows.length === 0) return null;
  return html`<h2>Groups</h2>
    <div class="scroll" tabindex="0" role="group" aria-label="Groups"><table>
      <thead><tr><th scope="col">Group</th><th scope="col">Promise</th><th scope="col">Get a verdict</th><th scope="col">Wrong of these</th><th scope="col">Threshold of</th></tr></thead>
      <tbody>${rows.map(
        (row) => html`<tr><th scope="row">${row.group}</th><td>${criterion(row)}</td><td>${percent(row.coverage, 1)}</td>
          <td>${percent(row.error, 1)} ${row.error_interval !== null && html`<small>${between(row.error_interval)} (95%)</small>`}</td><td>${row.threshold_of}</td></tr>`,
      )}</tbody>
    </table></div>`;
}

/** The audits of each group under one criterion; one with an alarm is named as such. @param {{ groups: any[] }} props */
export function AuditedGroups({ groups }) {
  if (groups.length === 0) return null;
  return html`<h3>By group</h3>
    <div class="scroll" tabindex="0" role="group" aria-label="By group"><table>
      <thead><tr><th scope="col">Group</th><th scope="col">Wrong</th><th scope="col">Labels</th><th scope="col">Against the verdict</th>
        <th scope="col">Evidence</th><th scope="col">Open</th></tr></thead>
      <tbody>${groups.map(
        (of) => html`<tr class=${of.alarm ? "worse" : ""}><th scope="row">${of.group}
            ${of.alarm && html` <span class="tag alarm">alarm${of.rang_at !== null && ` since ${moment(of.rang_at)}`}</span>`}</th>
          <td>${between(of.error_interval)}</td><td>${count(of.audited)}</td><td>${count(of.errors)}</td>
          <td>${evidence(of.evidence)} <small>of ${count(of.alarm_evidence)}</small></td><td>${count(of.open)}</td></tr>`,
      )}</tbody>
    </table></div>`;
}

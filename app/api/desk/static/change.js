// The question before a change: what it does, before and after, in two columns.
import { html } from "./ui.js";
import { Dialog, Promised, Refusal, useAction, Words } from "./parts.js";
import { count, moment, percent, promise } from "./format.js";

/** @typedef {{ threshold: number | null, coverage: number, empirical_risk: number | null, feasible: boolean, labels_missing: boolean }} Threshold */

/** One column of the preview. @param {{ row: Threshold }} props */
const Column = ({ row }) =>
  row.feasible
    ? html`<strong>${percent(row.coverage)}</strong> get a verdict
        <small>${percent(row.empirical_risk, 1)} of these wrong</small>`
    : html`<strong class="none">No verdicts</strong>
        <small>${row.labels_missing ? "labels are missing" : "the labels are not enough"}</small>`;

/** The effects of a change on the alphas in use. @param {{ effects: any[] }} props */
function Effects({ effects }) {
  if (effects.length === 0) return null;
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Effects">
    <table class="effects">
      <thead><tr><th scope="col">In use</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
      <tbody>
        ${effects.map(
          (effect) => html`<tr class=${effect.becomes_infeasible ? "worse" : ""}>
            <th scope="row"><${Promised} of=${effect} /></th>
            <td><${Column} row=${effect.before} /></td>
            <td><${Column} row=${effect.after} />
              ${effect.more_labels > 0 && html`<small>at least ${effect.more_labels} more labels are needed</small>`}
            </td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** What a change does to the pairs of a set. @param {any} preview @returns {string} */
function changesOf({ n, added, updated, removed, changed_labels = 0 }) {
  const parts = [[added, "added"], [updated, "changed"], [changed_labels, "with another label than before"], [removed, "removed"]].filter(([number]) => number > 0);
  return parts.length === 0 ? `Nothing changes: the set has ${count(n)} pairs.` : `${parts.map(([number, what]) => `${count(/** @type {number} */ (number))} ${what}`).join(", ")}: the set then has ${count(n)} pairs.`;
}

/**
 * Shows what a change would do, and asks.
 * @param {object} props
 * @param {string} props.title The question.
 * @param {any} props.preview The answer of the dry run.
 * @param {any} [props.children] What it means, in words.
 * @param {string | null} [props.more] A further sentence.
 * @param {string} props.confirm The answer yes.
 * @param {boolean} [props.danger]
 * @param {() => Promise<void>} props.run
 * @param {() => void} props.onClose
 */
export function ChangeDialog({ title, preview, children = null, more = null, confirm, danger = false, run, onClose }) {
  const { busy, error, press } = useAction(run);
  const alarms = preview.ends_alarms ?? [];
  return html`<${Dialog} title=${title} onClose=${onClose} wide>
    ${preview.added === undefined ? html`<p><${Words} of=${preview.note} /></p>` : html`<p>${changesOf(preview)}</p>`}
    ${children}
    ${more !== null && html`<p class="warn">${more}</p>`}
    <${Effects} effects=${preview.effects ?? []} />
    ${alarms.length > 0 &&
    html`<p>This ends ${alarms.length === 1 ? "an alarm" : `${alarms.length} alarms`}:
      ${" "}${alarms.map((/** @type {any} */ alarm) => `${promise(alarm)}, since ${moment(alarm.rang_at)}`).join("; ")}.</p>`}
    <${Refusal} of=${error} />
    <div class="row end">
      <button type="button" class="quiet" onClick=${onClose} data-first>Cancel</button>
      <button type="button" class=${danger ? "danger" : "main"} aria-disabled=${busy ? "true" : undefined} onClick=${press}>${busy ? "Wait…" : confirm}</button>
    </div>
  <//>`;
}

// The question before a change: what it does, before and after, in two columns.
import { html, useState } from "./ui.js";
import { detailOf, Dialog, Words } from "./parts.js";
import { criterion, moment, number, percent } from "./format.js";

/** @typedef {{ threshold: number | null, coverage: number, empirical_risk: number | null, feasible: boolean, labels_missing: boolean }} Threshold */

/** One column of the preview. @param {{ row: Threshold }} props */
const Column = ({ row }) =>
  row.feasible
    ? html`<strong>${percent(row.coverage)}</strong> get a verdict
        <small>threshold ${number(row.threshold)}, ${percent(row.empirical_risk, 1)} wrong</small>`
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
            <th scope="row">${criterion(effect)}</th>
            <td><${Column} row=${effect.before} /></td>
            <td><${Column} row=${effect.after} />
              ${effect.more_labels > 0 && html`<small>about ${effect.more_labels} more labels would help</small>`}
            </td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * Shows what a change would do, and asks.
 * @param {object} props
 * @param {string} props.title The question.
 * @param {any} props.preview The answer of the dry run.
 * @param {string | null} [props.more] A further sentence.
 * @param {string} props.confirm The answer yes.
 * @param {boolean} [props.danger]
 * @param {() => Promise<void>} props.run
 * @param {(error: unknown) => void} [props.report]
 * @param {() => void} props.onClose
 */
export function ChangeDialog({ title, preview, more = null, confirm, danger = false, run, onClose }) {
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState(/** @type {string | null} */ (null));
  const press = async () => {
    setBusy(true);
    setRefused(null);
    try {
      await run();
    } catch (error) {
      // The page behind the dialogue is inert, so its place for errors is out of reach.
      setRefused(detailOf(error));
      setBusy(false);
    }
  };
  const alarms = preview.ends_alarms ?? [];
  return html`<${Dialog} title=${title} onClose=${onClose} wide>
    <p><${Words} of=${preview.note} /></p>
    ${more !== null && html`<p class="warn">${more}</p>`}
    <${Effects} effects=${preview.effects ?? []} />
    ${alarms.length > 0 &&
    html`<p>This ends ${alarms.length === 1 ? "an alarm" : `${alarms.length} alarms`}:
      ${" "}${alarms.map((/** @type {any} */ alarm) => `${criterion(alarm)}, since ${moment(alarm.rang_at)}`).join("; ")}.</p>`}
    ${refused !== null && html`<p class="problem" role="alert">${refused}</p>`}
    <div class="row end">
      <button type="button" class="quiet" onClick=${onClose} data-first>Cancel</button>
      <button type="button" class=${danger ? "danger" : "main"} disabled=${busy} onClick=${press}>${confirm}</button>
    </div>
  <//>`;
}

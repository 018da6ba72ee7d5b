// Labeled audits become examples of a set: its preview and the question.
import { html, useState } from "./ui.js";
import { ofSet, post } from "./api.js";
import { ChangeDialog } from "./change.js";
import { Action } from "./parts.js";
import { plural } from "./format.js";

/**
 * A button that shows what an absorption would do, and asks.
 * @param {any} props `body` is that of POST /calibrations/{name}/absorb, without `dry_run`.
 */
export function Absorption({ name, body, report, onChanged, children, ...rest }) {
  const [asked, setAsked] = useState(/** @type {any} */ (null));
  const path = ofSet(name, "/absorb");
  const look = async () => setAsked({ body, preview: await post(path, { ...body, dry_run: true }) });
  const change = async () => {
    await post(path, asked.body);
    setAsked(null);
    onChanged();
  };
  const left = asked === null ? 0 : asked.preview.unlabelled_audits;
  return html`<${Action} run=${look} report=${report} ...${rest}>${children}<//>
    ${asked !== null &&
    html`<${ChangeDialog}
      title=${`Recalibrate ${name}?`}
      preview=${asked.preview}
      more=${left > 0 ? `${plural(left, "audit")} without a label will be left out.` : null}
      confirm="Recalibrate"
      run=${change}
      onClose=${() => setAsked(null)}
    />`}`;
}

/**
 * @param {{ name: string, monitor: any, report: (error: unknown) => void, onChanged: () => void }} props
 */
export function Recalibrate({ name, monitor, report, onChanged }) {
  const [even, setEven] = useState(false);
  return html`<div>
    <p class="hint">Labeled audits become examples of this set, in one new version. The preview changes nothing.</p>
    <p class="hint">${monitor.recovery === null
      ? "The audits up to the first open one are added."
      : `After the alarm, the first ${monitor.recovery.audits ?? ""} audits since then replace all other examples.`}</p>
    <label class="check"><input type="checkbox" checked=${even} onChange=${(/** @type {any} */ e) => setEven(e.target.checked)} />
      Even if an alpha in use loses its verdicts</label>
    <${Absorption} name=${name} body=${even ? { even_if_infeasible: true } : {}} report=${report} onChanged=${onChanged}>Preview<//>
  </div>`;
}

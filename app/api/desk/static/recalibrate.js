// Labelled audits become examples of a set: the form, its preview and the question.
import { html, useState } from "./ui.js";
import { ofSet, post } from "./api.js";
import { ChangeDialog } from "./change.js";
import { Action } from "./parts.js";
import { plural } from "./format.js";

/** @param {any} form @returns {Record<string, unknown>} The body of POST /calibrations/{name}/absorb. */
function bodyOf(form) {
  /** @type {Record<string, unknown>} */
  const body = { replace: form.replace, unlabelled: form.leaveOut ? "leave_out" : "refuse" };
  if (form.even) body.even_if_infeasible = true;
  if (form.unsafe) body.even_if_unsafe = true;
  if (form.from === "all") return { ...body, all: true };
  body.since = form.from === "alarm" ? "alarm" : new Date(form.since).toISOString();
  if (form.audits !== "") body.audits = Number(form.audits);
  return body;
}

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
  const rings = monitor.recovery !== null;
  const [form, setForm] = useState({
    from: rings ? "alarm" : "all",
    since: "",
    audits: rings && monitor.recovery.audits !== null ? String(monitor.recovery.audits) : "",
    replace: rings,
    leaveOut: false,
    even: false,
    unsafe: false,
  });
  const set = (/** @type {object} */ changes) => setForm((/** @type {any} */ before) => ({ ...before, ...changes }));
  const isDated = form.from !== "since" || form.since !== "";
  return html`<div>
    <p class="hint">Labelled audits become examples of this set, in one new version. The preview changes nothing.</p>
    ${rings &&
    html`<p class="hint">After an alarm, only the first audits since then keep the promise, in place of all other
      examples. Their number is fixed before their labels.</p>`}
    <div class="fields">
      <label>Audits
        <select value=${form.from} onChange=${(/** @type {any} */ e) => set({ from: e.target.value })}>
          ${rings && html`<option value="alarm">since the alarm</option>`}
          <option value="since">since a time</option>
          <option value="all">of all times</option>
        </select>
      </label>
      ${form.from === "since" &&
      html`<label>First judged at or after (your time)
        <input type="datetime-local" value=${form.since} onInput=${(/** @type {any} */ e) => set({ since: e.target.value })} />
      </label>`}
      ${form.from !== "all" &&
      html`<label>Only the first
        <input type="number" min="1" placeholder="all" value=${form.audits} onInput=${(/** @type {any} */ e) => set({ audits: e.target.value })} />
      </label>`}
    </div>
    <label class="check"><input type="checkbox" checked=${form.replace} onChange=${(/** @type {any} */ e) => set({ replace: e.target.checked })} />
      Replace all other examples (after the traffic has changed)</label>
    <label class="check"><input type="checkbox" checked=${form.leaveOut} onChange=${(/** @type {any} */ e) => set({ leaveOut: e.target.checked })} />
      Leave out audits without a label</label>
    <label class="check"><input type="checkbox" checked=${form.even} onChange=${(/** @type {any} */ e) => set({ even: e.target.checked })} />
      Even if an alpha in use loses its verdicts</label>
    ${rings &&
    html`<label class="check"><input type="checkbox" checked=${form.unsafe} onChange=${(/** @type {any} */ e) => set({ unsafe: e.target.checked })} />
      Even if that breaks the promise</label>`}
    <${Absorption} name=${name} body=${isDated && bodyOf(form)} report=${report} onChanged=${onChanged} disabled=${!isDated}>Preview<//>
  </div>`;
}

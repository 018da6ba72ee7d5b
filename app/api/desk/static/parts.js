// Small parts that several views share.
import { html, useEffect, useRef, useState } from "./ui.js";
import { Problem, savedKey, savedPerson, savePerson } from "./api.js";
import { inApi, inThisZone, promise } from "./format.js";

/** @typedef {(error: unknown) => void} Report Shows an error of a view as a whole, above it. */

/**
 * Loads data for a view; the view stays as it is until all of it is there.
 * @template T
 * @param {() => Promise<T>} load
 * @param {unknown[]} inputs Loaded again when one of them changes.
 * @param {Report} report
 * @returns {{ data: T | null, reload: () => void, failed: boolean }}
 */
export function useLoad(load, inputs, report) {
  const [state, setState] = useState(/** @type {{ data: T | null, failed: boolean }} */ ({ data: null, failed: false }));
  const again = useRef(() => {});
  useEffect(() => {
    let current = true;
    let busy = false;
    let stale = false;
    // One request at a time: labels that come fast neither drop an answer nor pile up requests.
    again.current = async () => {
      stale = true;
      if (busy) return;
      busy = true;
      while (stale && current) {
        stale = false;
        await load().then(
          (data) => current && setState({ data, failed: false }),
          (error) => {
            if (!current) return;
            setState((/** @type {any} */ before) => ({ ...before, failed: true }));
            report(error);
          },
        );
      }
      busy = false;
    };
    again.current();
    return () => void (current = false);
  }, inputs);
  return { ...state, reload: () => again.current() };
}

const REFRESH_MS = 10_000;

/**
 * Loads data for a view again and again while the page is visible, and after each label.
 * @template T
 * @param {() => Promise<T>} load
 * @param {unknown[]} inputs
 * @param {Report} report
 * @returns {{ data: T | null, reload: () => void, failed: boolean }}
 */
export function useRefreshed(load, inputs, report) {
  const loaded = useLoad(load, inputs, report);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || loaded.reload(), REFRESH_MS);
    addEventListener("labeled", loaded.reload);
    return () => {
      clearInterval(timer);
      removeEventListener("labeled", loaded.reload);
    };
  }, inputs);
  return loaded;
}

/** A line in place of a view whose data is not there yet. @param {{ failed?: boolean }} props */
export const Waiting = ({ failed = false }) =>
  html`<p class="waiting" role="status">${failed ? "This could not be loaded." : "Loading…"}</p>`;

/** A place for the error of one control. @param {{ of: unknown }} props */
export const Refusal = ({ of }) => of !== null && html`<p class="problem" role="alert">${detailOf(of)}</p>`;

/**
 * Runs an action of a control: whether it waits, and what went wrong, which goes when `inputs` change.
 * @param {(...given: any[]) => unknown} run
 * @param {unknown[]} [inputs]
 */
export function useAction(run, inputs = []) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const alive = useRef(true);
  useEffect(() => () => void (alive.current = false), []);
  useEffect(() => setError(null), inputs);
  const press = async (/** @type {any[]} */ ...given) => {
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      await run(...given);
    } catch (problem) {
      // Only the page as a whole can ask for a key.
      if (problem instanceof Problem && problem.status === 401) dispatchEvent(new CustomEvent("refused", { detail: problem }));
      else if (alive.current) setError(problem);
    }
    if (alive.current) setBusy(false);
  };
  return { busy, error, press };
}

/**
 * A button that says while it waits, keeps the focus, and has its error below it.
 * @param {any} props `waits` are the words while it waits; `inputs` are values whose change takes the error away.
 */
export function Action({ run, children, kind = "", disabled = false, waits = "Wait…", inputs = [], ...rest }) {
  const { busy, error, press } = useAction(run, inputs);
  return html`<button type="button" class=${kind} disabled=${disabled} aria-disabled=${busy ? "true" : undefined} onClick=${press} ...${rest}>
      ${busy ? waits : children}</button><${Refusal} of=${error} />`;
}

/** Commands, one at a time, with a button that copies the one on the page. @param {{ texts: Record<string, string> }} props */
export function Copyable({ texts }) {
  const names = Object.keys(texts);
  const [shown, setShown] = useState(names[0]);
  const [said, setSaid] = useState("Copy");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(texts[shown]);
      setSaid("Copied");
    } catch {
      setSaid("Select and copy");
    }
    setTimeout(() => setSaid("Copy"), 1500);
  };
  return html`<div class="copyable">
    <div class="row spread">
      <div class="row">${names.length > 1 &&
        names.map((name) => html`<button type="button" class="quiet tab" aria-pressed=${name === shown} onClick=${() => setShown(name)}>${name}</button>`)}</div>
      <button type="button" class="quiet accent" onClick=${copy} aria-label=${`Copy ${shown}`}>${said}</button>
    </div>
    <pre tabindex="0" aria-label=${shown}><code>${texts[shown]}</code></pre>
  </div>`;
}

/**
 * A dialogue over the page; Escape closes it.
 * @param {{ title: string, onClose: () => void, children?: any, wide?: boolean }} props
 */
export function Dialog({ title, onClose, children, wide = false }) {
  /** @type {any} */
  const ref = useRef(null);
  useEffect(() => {
    ref.current.showModal();
    // The first thing that can have the focus may be a table.
    ref.current.querySelector("[data-first]")?.focus();
  }, []);
  const cancel = (/** @type {Event} */ event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-label=${title} onCancel=${cancel} onClose=${onClose}>
    <h2>${title}</h2>
    ${children}
  </dialog>`;
}

/** @returns {boolean} Whether nobody has been asked for a name that this service needs. */
export const asksWho = () => savedKey() === null && savedPerson() === null;

/** The name that stands beside labels, asked once for a browser without a key. @param {{ onClose: () => void }} props */
export function Who({ onClose }) {
  const [name, setName] = useState(savedPerson() ?? "");
  const use = (/** @type {string} */ chosen) => {
    savePerson(chosen);
    onClose();
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    use(name.trim());
  };
  return html`<${Dialog} title="Who are you?" onClose=${() => use(savedPerson() ?? "")}>
    <p>Your name stands beside your labels and changes. This browser asks once.</p>
    <form onSubmit=${submit}><label>Your name <input maxlength="60" autocomplete="name" data-first value=${name} onInput=${(/** @type {any} */ e) => setName(e.target.value)} /></label>
      <div class="row end"><button type="button" class="quiet" onClick=${() => use("")}>Without a name</button><button class="main" disabled=${name.trim() === ""}>Use this name</button></div></form>
  <//>`;
}

/** A promise, with the API's words in small letters. @param {{ of: any }} props */
export const Promised = ({ of }) => html`${promise(of)} <small>${inApi(of)}</small>`;

/** A bar from 0 to 1 with a name in front and a figure behind. @param {any} props */
export const Share = ({ label, value, figure, kind = "" }) =>
  html`<div class="share">
    <span class="share-label">${label}</span>
    <svg class=${`bar ${kind}`} viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
      <rect class="bar-rest" width="100" height="10" />
      <rect class="bar-part" width=${100 * value} height="10" />
      <rect class="bar-half" x="49.7" width="0.6" height="10" />
    </svg>
    <span class="share-figure">${figure}</span>
  </div>`;

/** A sentence of the service, with times in this browser's zone; its commands stand in backticks. @param {{ of: string }} props */
export const Words = ({ of }) => {
  const sentence = `${of.charAt(0).toUpperCase()}${of.slice(1)}${/[.!?]$/.test(of) ? "" : "."}`;
  return inThisZone(sentence).split("`").map((part, i) => (i % 2 === 0 ? part : html`<code>${part}</code>`));
};

/** @param {unknown} error @returns {string} What the page says about it. */
export const detailOf = (error) =>
  error instanceof Problem ? error.detail : `The page has a defect: ${String(error)}`;

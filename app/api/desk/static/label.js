// Label: the queue of one set, blind and side by side, with a key for each answer.
import { html, useEffect, useState } from "./ui.js";
import { Dialog, Waiting, Words } from "./parts.js";
import { plural } from "./format.js";
import { PoolFile } from "./label_file.js";
import { openFile } from "./file_texts.js";
import { Markdown } from "./markdown.js";
import { levelOfAddress, PoolCard } from "./pool.js";
import { PoolUpload } from "./pool_upload.js";
import { useQueue } from "./queue.js";

const KEYS = [
  ["1", "the left response is better"],
  ["2", "the right response is better"],
  ["T", "both are equally good"],
  ["S", "skip: show this pair again later"],
  ["N", "this pair cannot be labeled"],
  ["U", "take the last answer back"],
  ["?", "these keys"],
];

/** The question why a pair cannot be labeled. @param {{ onClose: () => void, onReason: (reason: string) => void }} props */
function Reason({ onClose, onReason }) {
  const [reason, setReason] = useState("");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (reason.trim() !== "") onReason(reason.trim());
  };
  return html`<${Dialog} title="Why can nobody label this pair?" onClose=${onClose}>
    <form onSubmit=${submit}>
      <p class="hint">Such a pair counts against whatever it could prove, so no figure looks better by it. A pair that is
        only hard has a label: choose one, or a tie.</p>
      <label>Reason <input maxlength="200" data-first value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} /></label>
      <div class="row end"><button type="button" class="quiet" onClick=${onClose}>Cancel</button>
        <button class="main" disabled=${reason.trim() === ""}>Close this pair</button></div>
    </form>
  <//>`;
}

/** @param {{ onClose: () => void }} props */
const Keys = ({ onClose }) =>
  html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">${KEYS.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <div class="row end"><button type="button" class="main" onClick=${onClose} data-first>Close</button></div>
  <//>`;

/** What stands in place of a pair when there is none. @param {{ state: any, onFinish: () => void, onAgain: () => void }} props */
function Done({ state, onFinish, onAgain }) {
  if (state.working) return html`<section class="card empty"><p role="status">Loading…</p></section>`;
  if (state.held !== null)
    return html`<section class="card empty"><div><p>${state.pool === null ? "That was the last pair." : "That was the last pair before the next test."}
      ${" "}Your last answer is not sent yet, so you can still take it back.</p><p class="row"><button type="button" class="main" onClick=${onFinish}>Send it</button></p></div></section>`;
  if (state.open > 0 && state.open === state.without_texts)
    return html`<section class="card empty"><div><p>${plural(state.open, "audit")} without texts in the service: send the labels from a file, with
      <code>scope-judge audits label FILE</code>. With <code>SCOPE_AUDIT_TEXTS=on</code> the service keeps the texts of the next ones.</p>
      <p><button type="button" onClick=${onAgain}>Look again</button></p></div></section>`;
  if (state.pool !== null && state.pool.needed > 0 && state.pool.here === 0)
    return html`<section class="card empty"><div><p>The next pairs of the pool are not here. Open the file that has them.</p>
      <p><button type="button" onClick=${onAgain}>Look again</button></p></div></section>`;
  return html`<section class="card empty"><div><p>No pair waits for your label.</p>
    <p><button type="button" onClick=${onAgain}>Look again</button></p></div></section>`;
}

/** A text of a pair. @param {{ of: string, label: string, kind: string, rendered: boolean }} props */
const Text = ({ of, label, kind, rendered }) =>
  html`<section class=${`card ${kind}`} aria-label=${label} tabindex="0">${rendered ? html`<${Markdown} text=${of} />` : html`<div class="text" dir="auto">${of}</div>`}</section>`;

/** The pair on the screen. @param {{ pair: import("./queue.js").Pair, rendered: boolean }} props */
const Pair = ({ pair, rendered }) =>
  html`<${Text} of=${pair.question} label="Question" kind="question" rendered=${rendered} />
    <div class="sides" key=${pair.id}>
      <${Text} of=${pair.left} label="Left response" kind="response" rendered=${rendered} />
      <${Text} of=${pair.right} label="Right response" kind="response" rendered=${rendered} />
    </div>`;

/** @param {EventTarget | null} target */
const isTyping = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));

/** @param {{ name: string, sets: any[], info: any, report: (error: unknown) => void, onChanged: () => void }} props */
export function Label({ name, sets, info, report, onChanged }) {
  const level = info === null ? "" : levelOfAddress();
  const set = sets.find((each) => each.name === name);
  const queue = useQueue(name, level, info?.fingerprint ?? "", report);
  const [asks, setAsks] = useState(/** @type {"reason" | "keys" | null} */ (null));
  const [rendered, setRendered] = useState(false);
  const { state, answer, undo, skip, finish } = queue;
  const pair = state?.pair ?? null;
  const pooled = (/** @type {File} */ file) => {
    onChanged();
    // The texts of the new pairs are at hand.
    openFile(file, info.fingerprint, () => undefined).then(queue.again, report);
  };
  // A pair of a pool is never closed: the tests would stop there.
  const canClose = pair !== null && !pair.isPooled;
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (asks !== null || isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
      /** @type {Record<string, () => void>} */
      const actions = {
        1: () => answer("left"),
        2: () => answer("right"),
        t: () => answer("tie"),
        s: skip,
        u: undo,
        n: () => canClose && setAsks("reason"),
        "?": () => setAsks("keys"),
      };
      const action = actions[event.key.toLowerCase()];
      if (action === undefined) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  if (state === null) return html`<${Waiting} failed=${queue.failed} />`;
  return html`<div class="label">
    <div class="row spread above"><div class="row"><h1>Which response is better? ${sets.length <= 1 && html`<small>${name}</small>`}</h1>${sets.length > 1 &&
      html`<select aria-label="Set" value=${name} onChange=${(/** @type {any} */ e) => (location.hash = `#label/${e.target.value}`)}>
        ${sets.map((set) => html`<option value=${set.name}>${set.name}</option>`)}</select>`}</div><p class="muted" role="status"><${Words} of=${state.words} /></p></div>
    ${pair === null
      ? html`<${Done} state=${state} onFinish=${finish} onAgain=${queue.again} />`
      : html`<${Pair} pair=${pair} rendered=${rendered} />`}
    <div class="answers">
      <button type="button" class="choice" disabled=${pair === null} onClick=${() => answer("left")}>Left is better <kbd>1</kbd></button>
      <button type="button" class="choice" disabled=${pair === null} onClick=${() => answer("tie")}>Equally good <kbd>T</kbd></button>
      <button type="button" class="choice" disabled=${pair === null} onClick=${() => answer("right")}>Right is better <kbd>2</kbd></button>
    </div>
    <div class="row">
      <button type="button" class="quiet" disabled=${state.held === null} onClick=${undo}>Undo <kbd>U</kbd></button>
      <button type="button" class="quiet" disabled=${pair === null} onClick=${skip}>Skip for now <kbd>S</kbd></button>
      <button type="button" class="quiet" disabled=${!canClose} onClick=${() => setAsks("reason")}>Cannot be labeled <kbd>N</kbd></button>
      <button type="button" class="quiet" aria-pressed=${rendered} onClick=${() => setRendered(!rendered)}>Markdown</button>
      <button type="button" class="quiet" onClick=${() => setAsks("keys")}>Keys <kbd>?</kbd></button>
    </div>
    ${!pair?.isPooled && html`<p class="hint">A skipped pair comes back. Labels count in the order in which pairs were drawn, so a pair that stays
      without one holds the later ones up.</p>`}
    ${asks === "reason" && html`<${Reason} onClose=${() => setAsks(null)} onReason=${(/** @type {string} */ reason) => {
      setAsks(null);
      answer("none", reason);
    }} />`}
    ${asks === "keys" && html`<${Keys} onClose=${() => setAsks(null)} />`}
    ${state.pool !== null && html`<${PoolFile} fingerprint=${info.fingerprint} here=${state.pool.here} report=${report} onFile=${queue.again} />`}
    ${set !== undefined && (set.unlabelled > 0 || level !== "") && html`<${PoolCard} set=${set} level=${level} state=${state} />`}
    ${set !== undefined && html`<details class="card"><summary>Add pairs without labels</summary>
      <${PoolUpload} name=${name} info=${info} labelled=${set.labelled} report=${report} onDone=${pooled} /></details>`}
  </div>`;
}

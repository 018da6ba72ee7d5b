// Label: the queue of one set, blind and side by side, with a key for each answer.
import { html, useEffect, useState } from "./ui.js";
import { isReviewer, labellerName, ofSet, post, savedKey, saveLabellerName, urlOf } from "./api.js";
import { Action, Copyable, Dialog, Waiting, Words } from "./parts.js";
import { moment } from "./format.js";
import { Sources } from "./label_file.js";
import { openFile } from "./file_texts.js";
import { Markdown } from "./markdown.js";
import { levelOfAddress, PoolCard } from "./pool.js";
import { PoolUpload } from "./pool_upload.js";
import { useQueue } from "./queue.js";
import { addressOf, reviewersOfAddress, TwoReviewers } from "./two_reviewers.js";

const KEYS = [
  ["1", "the left response is better"],
  ["2", "the right response is better"],
  ["T", "both are equally good"],
  ["S", "skip: show this pair again later"],
  ["N", "this pair cannot be labelled"],
  ["U", "take the last answer back"],
  ["?", "these keys"],
];

/** The question why a pair cannot be labelled. @param {{ onClose: () => void, onReason: (reason: string) => void }} props */
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

/** The name that the trail has for the labels of this tab. @param {{ value: string, onChange: (name: string) => void }} props */
function Name({ value, onChange }) {
  const change = (/** @type {any} */ event) => {
    const name = event.target.value.trim();
    event.target.value = name === "" ? value : name;
    if (name === "" || name === value) return;
    saveLabellerName(name);
    onChange(name);
  };
  return html`<p class="row hint"><label>You label as <input value=${value} maxlength="64" pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*"
    title="Letters, digits, dots, hyphens and underscores" onChange=${change} /></label></p>`;
}

/** Makes a link with which somebody else may label this set, and nothing else. @param {any} props */
function Invite({ name, reviewers, report }) {
  const [who, setWho] = useState("");
  const [link, setLink] = useState(/** @type {any} */ (null));
  const make = async () => {
    const made = await post(ofSet(name, "/label-links"), { reviewer: who });
    setLink({ url: `${urlOf("desk")}#label/${name}?${reviewers === 2 ? "reviewers=2&" : ""}token=${encodeURIComponent(made.token)}`, expires: made.expires });
  };
  return html`<details class="card"><summary>Invite a reviewer</summary>
    <p class="hint">The link lets one person label this set until it expires, and do nothing else.</p>
    <div class="fields"><label>Name of the reviewer <input value=${who} onInput=${(/** @type {any} */ e) => setWho(e.target.value)} /></label>
      <${Action} run=${make} report=${report} disabled=${who.trim() === ""}>Make a link<//></div>
    ${link !== null && html`<p>This link works until ${moment(link.expires)}, and is shown only now.</p>
      <${Copyable} texts=${{ link: link.url }} />`}
  </details>`;
}

/** What stands in place of a pair when there is none. @param {{ state: any, onFinish: () => void, onAgain: () => void }} props */
function Done({ state, onFinish, onAgain }) {
  if (state.working) return html`<section class="card empty"><p role="status">Loading…</p></section>`;
  if (state.held !== null)
    return html`<section class="card empty"><div><p>${state.pool === null ? "That was the last pair." : "That was the last pair before the next test."}
      ${" "}Your last answer is not sent yet, so you can still take it back.</p><p class="row"><button type="button" class="main" onClick=${onFinish}>Send it</button></p></div></section>`;
  if (state.without_texts > state.matched)
    return html`<section class="card empty"><div><p>Pairs wait for a label, and their texts are not here. Open a file that has them.
      With <code>SCOPE_AUDIT_TEXTS=on</code> the service keeps the texts of the next ones itself.</p>
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
    <div class="sides" key=${pair.ticket}>
      <${Text} of=${pair.left} label="Left response" kind="response" rendered=${rendered} />
      <${Text} of=${pair.right} label="Right response" kind="response" rendered=${rendered} />
    </div>`;

/** @param {EventTarget | null} target */
const isTyping = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));

/** @param {{ name: string, sets: any[], info: any, report: (error: unknown) => void, onChanged: () => void }} props */
export function Label({ name, sets, info, report, onChanged }) {
  const [reviewer, setReviewer] = useState(labellerName);
  const reviewers = reviewersOfAddress();
  // An opinion is about an audit: a pair of a pool has one label.
  const level = reviewers === 1 ? levelOfAddress() : "";
  const set = sets.find((each) => each.name === name);
  const queue = useQueue(name, reviewer, reviewers, level, report);
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
  const canClose = pair !== null && !pair.is_pooled;
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
      html`<select aria-label="Set" value=${name} onChange=${(/** @type {any} */ e) => (location.hash = addressOf(e.target.value, reviewers))}>
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
      <button type="button" class="quiet" disabled=${!canClose} onClick=${() => setAsks("reason")}>Cannot be labelled <kbd>N</kbd></button>
      <button type="button" class="quiet" aria-pressed=${rendered} onClick=${() => setRendered(!rendered)}>Markdown</button>
      <button type="button" class="quiet" onClick=${() => setAsks("keys")}>Keys <kbd>?</kbd></button>
    </div>
    ${!pair?.is_pooled && html`<p class="hint">A skipped pair comes back. Labels count in the order in which pairs were drawn, so a pair that stays
      without one holds the later ones up.</p>`}
    ${asks === "reason" && html`<${Reason} onClose=${() => setAsks(null)} onReason=${(/** @type {string} */ reason) => {
      setAsks(null);
      answer("none", reason);
    }} />`}
    ${asks === "keys" && html`<${Keys} onClose=${() => setAsks(null)} />`}
    <${Sources} name=${name} withoutTexts=${state.without_texts} kept=${state.open} matched=${state.matched} pooled=${state.pool?.here ?? null} report=${report} onFile=${queue.again} />
    ${set !== undefined && reviewers === 1 && (set.unlabelled > 0 || level !== "") && html`<${PoolCard} set=${set} level=${level} state=${state} />`}
    ${set !== undefined && html`<details class="card"><summary>Add pairs without labels</summary>
      <${PoolUpload} name=${name} info=${info} labelled=${set.labelled} report=${report} onDone=${pooled} /></details>`}
    ${reviewer !== undefined && html`<${Name} value=${reviewer} onChange=${setReviewer} />`}
    ${!isReviewer() && html`<${TwoReviewers} name=${name} reviewers=${reviewers} waiting=${state.disagreements} report=${report} />`}
    ${!isReviewer() && savedKey() !== null && html`<${Invite} name=${name} reviewers=${reviewers} report=${report} />`}
  </div>`;
}

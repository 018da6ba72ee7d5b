// Label: the queue of one set, blind and side by side, with a key for each answer.
import { html, useEffect, useState } from "./ui.js";
import { asksWho, detailOf, Dialog, Waiting, Who, Words } from "./parts.js";
import { plural } from "./format.js";
import { Markdown } from "./markdown.js";
import { savedKey, savedPerson } from "./api.js";
import { goalOf, PoolCard } from "./pool.js";
import { useQueue } from "./queue.js";

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

/** What stands in place of a pair when there is none. @param {{ state: any, name: string, onFinish: () => void, onAgain: () => void, onSave: () => void }} props */
function Done({ state, name, onFinish, onAgain, onSave }) {
  const { pool } = state;
  const card = (/** @type {any} */ said, /** @type {any} */ button) => html`<section class="card empty"><div><p role="status">${said}</p><p>${button}</p></div></section>`;
  if (state.working) return html`<section class="card empty"><p role="status">Loading…</p></section>`;
  const again = html`<button type="button" onClick=${onAgain}>${state.problem === null ? "Look again" : "Try again"}</button>`;
  if (state.problem !== null) {
    const here = (pool?.done ?? 0) + (state.held !== null && !state.held.pair.isPooled ? 1 : 0);
    return card(`${detailOf(state.problem)}${here === 0 ? "" : ` ${plural(here, "label")} ${here === 1 ? "waits" : "wait"} here.`}`, again);
  }
  const lacks = pool !== null && pool.decided === null && pool.open > pool.done ? "The text of the next pair is not in this browser: open the whole file." : "";
  if (pool !== null && pool.done > 0)
    return card(html`${lacks || `That was the last pair${pool.decided === null ? "" : " that the promise needs"}.`} ${pool.words} Save the labels as one version of the set; until then you can take the last answer back.`,
      html`<button type="button" class="main" onClick=${onSave}>Save ${plural(pool.done, "label")}</button>`);
  if (state.held !== null)
    return card("That was the last pair for now. Your last answer is not sent yet, so you can still take it back.", html`<button type="button" class="main" onClick=${onFinish}>Send it</button>`);
  if (state.open > 0 && state.open === state.without_texts)
    return card(`${plural(state.open, "pair")} without texts in the service: label ${state.open === 1 ? "it" : "them"} in a file, or ask your operator to keep the texts of the next ones.`, again);
  if (lacks !== "") return card(lacks, again);
  if (pool !== null) return card(pool.decided === null ? "All pairs have their label." : pool.words, html`<a class="button main" href="#home">May I use it?</a>`);
  return card("No pair waits for your label.", html`${again} <a class="button" href=${`#watch/${name}`}>Watch</a>`);
}

/** A text of a pair. @param {{ of: string, label: string, kind: string, rendered: boolean }} props */
const Text = ({ of, label, kind, rendered }) =>
  html`<section class=${`card ${kind}`} aria-label=${label} tabindex="0">${rendered ? html`<${Markdown} text=${of} />` : html`<div class="text" dir="auto">${of}</div>`}</section>`;

/** The pair on the screen. @param {{ pair: import("./queue.js").Pair, rendered: boolean }} props */
const Pair = ({ pair, rendered }) =>
  html`<${Text} of=${pair.question} label="Question" kind="question" rendered=${rendered} />
    <div class="sides" key=${pair.id}>
      ${[["Left", "1", pair.left], ["Right", "2", pair.right]].map(([side, key, text]) => html`<div><h2 class="row spread">${side} <kbd>${key}</kbd></h2>
        <${Text} of=${text} label=${`${side} response`} kind="response" rendered=${rendered} /></div>`)}
    </div>`;

/** @param {EventTarget | null} target */
const isTyping = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));

/** @param {{ name: string, sets: any[], info: any, report: (error: unknown) => void, onChanged: () => void }} props */
export function Label({ name, sets, info, report, onChanged }) {
  const set = sets.find((each) => each.name === name);
  // A key that may only label sees no sets.
  const goal = set === undefined ? "" : goalOf(name);
  const queue = useQueue(name, goal, info, report, onChanged);
  const [asks, setAsks] = useState(/** @type {"reason" | "name" | null} */ (asksWho() ? "name" : null));
  const [rendered, setRendered] = useState(false);
  const { state, answer, undo, skip, finish } = queue;
  const save = () => {
    // Labels of an earlier visit say what they are for only until they are saved.
    history.replaceState(null, "", `#label/${name}?for=${goal}`);
    queue.save();
  };
  const pair = state?.pair ?? null;
  // A pair of the set itself is never closed: the tests would stop there.
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
      };
      const action = actions[event.key.toLowerCase()];
      if (action === undefined) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  if (state === null) return html`<${Waiting} />`;
  const pool = html`<${PoolCard} set=${set} info=${info} goal=${goal} here=${state.here} onFile=${queue.again} />`;
  // Nothing else waits, so the person chooses how to label the set's own pairs.
  const chooses = pair === null && goal === "" && state.open === 0 && state.held === null && set?.unlabelled > 0;
  const lacksTexts = goal !== "" && state.pool !== null && state.here < state.pool.open;
  return html`<div class="label">
    <div class="row spread above"><div class="row"><h1>Which response is better? ${sets.length <= 1 && html`<small>${name}</small>`}</h1>${sets.length > 1 &&
      html`<select aria-label="Set" value=${name} onChange=${(/** @type {any} */ e) => (location.hash = `#label/${e.target.value}`)}>
        ${sets.map((set) => html`<option value=${set.name}>${set.name}</option>`)}</select>`}</div>${pair !== null && html`<p class="muted" role="status"><${Words} of=${state.words} /></p>`}</div>
    ${chooses ? pool : pair === null
      ? html`<${Done} state=${state} name=${name} onFinish=${finish} onAgain=${queue.again} onSave=${save} />`
      : html`<${Pair} pair=${pair} rendered=${rendered} />`}
    ${(pair !== null || state.held !== null) && html`<div class="answers">
      <button type="button" class="choice" disabled=${pair === null} onClick=${() => answer("left")}>Left is better <kbd>1</kbd></button>
      <button type="button" class="choice" disabled=${pair === null} onClick=${() => answer("tie")}>Equally good <kbd>T</kbd></button>
      <button type="button" class="choice" disabled=${pair === null} onClick=${() => answer("right")}>Right is better <kbd>2</kbd></button>
    </div>
    <div class="row">
      <button type="button" class="quiet" disabled=${state.held === null} onClick=${undo}>Undo <kbd>U</kbd></button>
      <button type="button" class="quiet" disabled=${pair === null} onClick=${skip}>Skip for now <kbd>S</kbd></button>
      <button type="button" class="quiet" disabled=${!canClose} onClick=${() => setAsks("reason")}>Cannot be labeled <kbd>N</kbd></button>
      <button type="button" class="quiet" aria-pressed=${rendered} onClick=${() => setRendered(!rendered)}>Markdown</button>
    </div>`}
    ${savedKey() === null && savedPerson() ? html`<p class="hint">Your labels have the name ${savedPerson()}. <button type="button" class="link" onClick=${() => setAsks("name")}>Change it</button></p>`
      : savedKey() !== null && html`<p class="hint">Your labels have the name of your key, ${info.caller}.</p>`}
    ${pair !== null && html`<p class="hint">A skipped pair comes back. ${canClose
      ? "Labels count in the order in which pairs were drawn, so a pair that stays without one holds the later ones up."
      : "No pair of the set itself can be closed, because the promise needs a label of each."}</p>`}
    ${asks === "reason" && html`<${Reason} onClose=${() => setAsks(null)} onReason=${(/** @type {string} */ reason) => {
      setAsks(null);
      answer("none", reason);
    }} />`}
    ${asks === "name" && html`<${Who} onClose=${() => setAsks(null)} />`}
    ${state.pool?.done > 0 && pair !== null && html`<p class="row hint">${plural(state.pool.done, "label")} ${state.pool.done === 1 ? "waits in this browser, and becomes" : "wait in this browser, and become"} one version when you leave or save.
      <button type="button" class="quiet accent" onClick=${save}>Save now</button></p>`}
    ${lacksTexts || (goal === "" && !chooses && set?.unlabelled > 0) ? pool : goal !== "" && html`<p class="hint"><a href=${`#label/${name}`}>Change what to label</a></p>`}
  </div>`;
}

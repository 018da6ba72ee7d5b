// Pairs of a file become a set, or part of one: read here, judged in parts, previewed, and added in one new version.
import { html, useEffect, useState } from "./ui.js";
import { allSets, ofSet, post, Problem } from "./api.js";
import { count, percent, plain, plural } from "./format.js";
import { ChangeDialog } from "./change.js";
import { KEPT, keepPairs } from "./pair_store.js";
import { FileProblem, NO_COLUMNS, pairsOf } from "./pair_rows.js";
import { Action, asksWho, Dialog, Refusal, useAction, Who } from "./parts.js";
import { scored } from "./scoring.js";

/** @typedef {import("./pair_rows.js").PairFile} PairFile */

/** @type {Record<string, string>} */
const FIELDS = { question: "Question", response_a: "Response A", response_b: "Response B", label: "Label (A, B or tie)" };
const REQUIRED = ["question", "response_a", "response_b"];
const NOTHING = { question: "", response_a: "", response_b: "", label: "" };

/** @param {PairFile} read @returns {string} What the file has, in a sentence. */
function contentsOf(read) {
  const open = read.pairs.length - read.labelled;
  const parts = [`${plural(read.pairs.length, "pair")}: ${count(read.labelled)} with a label, ${count(open)} to label here.`];
  if (read.repeated > 0) parts.push(`${plural(read.repeated, "repeated row")} left out.`);
  if (read.unreadable > 0) parts.push(`${plural(read.unreadable, "row")} left out; the first: ${read.reason}.`);
  return parts.join(" ");
}

/** Columns that have the name of their field. @param {string[]} names */
const guessOf = (names) => Object.fromEntries(Object.keys(FIELDS).map((field) => [field, names.includes(field) ? field : ""]));

/** Which column is which, if the names differ. @param {{ names: string[], columns: any, onChange: (columns: any) => void }} props */
const Columns = ({ names, columns, onChange }) =>
  html`<fieldset><legend>Which column is which?</legend><div class="fields">
    ${Object.entries(FIELDS).map(([field, label]) => html`<label>${label}
      <select value=${columns[field]} onChange=${(/** @type {any} */ e) => onChange({ ...columns, [field]: e.target.value })}>
        <option value="">${field === "label" ? "none: label on the page" : "choose"}</option>
        ${names.map((name) => html`<option value=${name}>${name}</option>`)}
      </select></label>`)}
  </div></fieldset>`;

/**
 * A file of pairs, with or without labels.
 * @param {{ onRead: (read: PairFile | null) => void, label: string }} props
 */
export function PairFileField({ onRead, label }) {
  const [file, setFile] = useState(/** @type {File | null} */ (null));
  const [columns, setColumns] = useState(/** @type {any} */ (null));
  const [read, setRead] = useState(/** @type {PairFile | null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const chosen = REQUIRED.map((field) => columns?.[field] ?? field);
  const isWhole = !chosen.includes("") && new Set(chosen).size === chosen.length;
  useEffect(() => {
    if (file === null || !isWhole) return;
    let current = true;
    const refuse = (/** @type {string} */ reason) => setError(new Problem(0, "unreadable_file", `The file cannot be used: ${reason}.`));
    pairsOf(file, columns).then(
      (found) => {
        if (!current) return;
        const isEmpty = found.pairs.length === 0;
        setRead(found);
        if (isEmpty && found.reason === NO_COLUMNS && found.names.length >= REQUIRED.length) setColumns(NOTHING);
        else if (isEmpty) refuse(found.reason === NO_COLUMNS ? "a question and two responses need three columns" : found.reason || "it has no rows");
        onRead(isEmpty ? null : found);
      },
      (problem) => current && (problem instanceof FileProblem ? refuse(problem.message) : setError(problem)),
    );
    return () => void (current = false);
  }, [file, columns]);
  const match = (/** @type {any} */ chosen) => {
    setColumns(chosen);
    setRead({ .../** @type {PairFile} */ (read), pairs: [] });
    setError(null);
    onRead(null);
  };
  const choose = (/** @type {any} */ event) => {
    setColumns(null);
    setRead(null);
    setError(null);
    onRead(null);
    setFile(event.target.files[0] ?? null);
  };
  return html`<label>${label}
      <input type="file" accept=".jsonl,.ndjson,.json,.csv,.tsv,.txt,.xlsx" onChange=${choose} /></label>
    ${file === null && html`<p class="hint">CSV, TSV, JSON Lines or JSON with a question and two responses a row, with or without a label (A, B or tie).</p>`}
    ${columns !== null && html`<${Columns} names=${read?.names ?? []} columns=${columns} onChange=${match} />
      ${!isWhole && html`<p class="hint">The question and the two responses are three different columns.</p>`}`}
    ${read !== null && read.pairs.length > 0 && html`<p class="note row spread" role="status">${contentsOf(read)}
      ${columns === null && html`<button type="button" class="quiet accent" onClick=${() => match(guessOf(read.names))}>Choose the columns</button>`}</p>`}
    <${Refusal} of=${error} />`;
}

/** A name beside another one that is taken. @param {string} name @param {any[]} sets */
function nextName(name, sets) {
  const taken = new Set(sets.map((set) => set.name));
  for (let number = 2; ; number++) if (!taken.has(`${name}-${number}`)) return `${name}-${number}`;
}

/** What the set promises then. @param {{ preview: any, read: PairFile, info: any }} props */
function Outcome({ preview, read, info }) {
  const row = preview.thresholds.find((/** @type {any} */ each) => each.alpha === info.default_alpha && each.guarantee === info.default_guarantee);
  if (preview.unlabelled > 0)
    return html`<p>${plural(preview.unlabelled, "pair")} ${preview.unlabelled === 1 ? "waits" : "wait"} for a label then; until they have them, there are
      few or no verdicts. ${KEPT}</p>`;
  return html`<p>The judge is right in ${percent(preview.accuracy, 1)} of the ${count(read.labelled)} labels. ${row?.feasible
    ? `At ${plain(row.alpha)}, ${percent(row.coverage)} of pairs get a verdict then.` : `At ${plain(info.default_alpha)}, no pair gets a verdict yet.`}</p>`;
}

/**
 * Adds a file of pairs to a set.
 * @param {{ name: string, set: any, sets: any[], info: any, read: PairFile | null, onDone: (name: string, isOpen: boolean) => void }} props
 *   `set` is null for a new one.
 */
function Adding({ name, set, sets, info, read, onDone }) {
  const [done, setDone] = useState(/** @type {number | null} */ (null));
  const [asked, setAsked] = useState(/** @type {any} */ (null));
  const open = read === null ? 0 : read.pairs.length - read.labelled;
  const look = async (/** @type {string} */ to) => {
    const file = /** @type {PairFile} */ (read);
    setDone(0);
    try {
      const { body, kept, failed } = await scored(to, file.pairs, info.limits, setDone);
      const preview = await post(ofSet(to, "/examples"), { ...body, dry_run: true });
      setAsked({ to, body, kept, preview, failed });
    } finally {
      setDone(null);
    }
  };
  const start = async () => {
    if (asksWho()) return setAsked({ who: true });
    // Pairs without labels would end the verdicts that the set gives.
    if (set !== null && open > 0 && set.thresholds.some((/** @type {any} */ row) => row.feasible)) setAsked({ offers: nextName(name, sets) });
    else await look(name);
  };
  const add = async () => {
    await keepPairs(asked.to, asked.kept);
    await post(ofSet(asked.to, "/examples"), asked.body);
    setAsked(null);
    onDone(asked.to, asked.kept.length > 0);
  };
  const { busy, error, press } = useAction(start, [read, name]);
  const isNew = asked?.to !== set?.name;
  const pairs = plural(asked?.body?.examples.length ?? 0, "pair");
  return html`<div class="row"><button type="button" class="main" disabled=${read === null} aria-disabled=${busy ? "true" : undefined} onClick=${press}>
      ${busy ? "The judge reads them…" : "Judge and preview"}</button><${Refusal} of=${error} /></div>
    ${done !== null && read !== null &&
    html`<p role="status"><progress value=${done} max=${read.pairs.length} aria-label="Judged pairs"></progress> ${count(done)} of ${plural(read.pairs.length, "pair")} judged</p>`}
    ${asked?.who && html`<${Who} onClose=${() => {
      setAsked(null);
      void press();
    }} />`}
    ${asked?.offers && html`<${Offer} name=${name} other=${asked.offers} open=${open} look=${look} onClose=${() => setAsked(null)} />`}
    ${asked?.preview &&
    html`<${ChangeDialog} title=${isNew ? `Make ${asked.to} from ${pairs}?` : `Add ${pairs} to ${asked.to}?`} preview=${asked.preview} confirm=${isNew ? "Make it" : "Add them"} run=${add} onClose=${() => setAsked(null)}
      more=${asked.failed > 0 ? `${plural(asked.failed, "pair")} could not be judged and will be left out.` : null}>
      <${Outcome} preview=${asked.preview} read=${read} info=${info} /><//>`}`;
}

/** A set of its own for pairs without labels. @param {any} props */
const Offer = ({ name, other, open, look, onClose }) =>
  html`<${Dialog} title=${`Keep the verdicts of ${name}?`} onClose=${onClose}>
    <p>${plural(open, "pair")} of the file ${open === 1 ? "has" : "have"} no label. Added to ${name}, they end its verdicts until they are labeled. A new set, ${other}, keeps both apart.</p>
    <div class="row end">
      <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
      <${Action} kind="danger" waits="The judge reads them…" run=${() => look(name)}>Add them to ${name}<//>
      <${Action} kind="main" waits="The judge reads them…" run=${() => look(other)} data-first>Make ${other}<//>
    </div>
  <//>`;

/** Where to go with pairs that have been added. @param {string} name @param {boolean} isOpen */
const goTo = (name, isOpen) => (location.hash = isOpen ? `#label/${name}` : `#home`);

/** More pairs for a set. @param {{ set: any, info: any, onChanged: () => void }} props */
export function MorePairs({ set, info, onChanged }) {
  const [read, setRead] = useState(/** @type {PairFile | null} */ (null));
  const [sets, setSets] = useState(/** @type {any[]} */ ([set]));
  useEffect(() => void allSets().then(({ calibrations }) => setSets(calibrations), () => undefined), []);
  return html`<div class="upload"><${PairFileField} label="File of pairs" onRead=${setRead} />
    <${Adding} name=${set.name} set=${set} sets=${sets} info=${info} read=${read} onDone=${(/** @type {string} */ to, /** @type {boolean} */ isOpen) => {
      onChanged();
      if (isOpen || to !== set.name) goTo(to, isOpen);
    }} /></div>`;
}

/** A new set: its name, and a file. @param {{ sets: any[], info: any, onChanged: () => void }} props */
export function NewSet({ sets, info, onChanged }) {
  const [name, setName] = useState(sets.length === 0 ? "default" : nextName("set", sets));
  const [read, setRead] = useState(/** @type {PairFile | null} */ (null));
  const [shown, setShown] = useState(0);
  const isFine = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(name);
  const isTaken = sets.some((set) => set.name === name);
  return html`<section class="card" id="new-set" aria-labelledby="new-title">
    <h2 id="new-title">New set</h2>
    <p class="hint">Pairs drawn at random from what you will judge; a few hundred are a good start. The file stays in this browser; its pairs go to the judge.</p>
    <div class="upload">
      <label>Name <input value=${name} onInput=${(/** @type {any} */ e) => setName(e.target.value)} spellcheck="false" /></label>
      ${!isFine && html`<p class="warn">A name has up to 64 letters, digits, dots, dashes and underscores.</p>`}
      ${isTaken && html`<p class="warn">There is a set ${name}: <a href=${`#sets/${name}`}>add pairs to it</a>, or choose another name.</p>`}
      <${PairFileField} key=${shown} label="File of pairs" onRead=${setRead} />
      <${Adding} name=${name} set=${null} sets=${sets} info=${info} read=${isFine && !isTaken ? read : null} onDone=${(/** @type {string} */ to, /** @type {boolean} */ isOpen) => {
        setRead(null);
        setShown(shown + 1);
        setName(nextName("set", [...sets, { name: to }]));
        onChanged();
        goTo(to, isOpen);
      }} />
    </div>
  </section>`;
}

// Pairs without labels from a file: read and counted here, then judged into the pool of a set.
import { html, useState } from "./ui.js";
import { ofSet, post, Problem } from "./api.js";
import { count, plural } from "./format.js";
import { ChangeDialog } from "./change.js";
import { fieldsOf, rowsOf } from "./pair_places.js";
import { FileProblem, pairOf } from "./pair_rows.js";
import { Action } from "./parts.js";
import { partsOf } from "./upload.js";

/** @typedef {{ pairs: Record<string, unknown>[], repeated: number, unreadable: number, reason: string }} Read */

/**
 * The pairs of a file, without repeated ones.
 * @param {Blob} file
 * @returns {Promise<Read>}
 * @throws {Problem} The page cannot read the file, or it has no pair.
 */
async function pairsOf(file) {
  /** @type {Map<string, Record<string, unknown>>} */
  const pairs = new Map();
  const read = { repeated: 0, unreadable: 0, reason: "" };
  const add = (/** @type {Uint8Array} */ row, /** @type {any} */ format) => {
    const pair = pairOf(row, format);
    if (pair === null) return;
    const known = pairs.size;
    pairs.set(JSON.stringify([pair.question, [pair.a, pair.b].map((texts) => JSON.stringify(texts)).sort()]), fieldsOf(pair));
    if (pairs.size === known) read.repeated += 1;
  };
  try {
    for await (const { rows, format } of rowsOf(file))
      for (const { row } of rows)
        try {
          add(row, format);
        } catch (problem) {
          if (!(problem instanceof FileProblem)) throw problem;
          read.unreadable += 1;
          read.reason ||= problem.message;
        }
  } catch (problem) {
    throw problem instanceof FileProblem ? new Problem(0, "unreadable_file", `The file cannot be used: ${problem.message}.`) : problem;
  }
  if (pairs.size === 0) throw new Problem(0, "unreadable_file", `The file has no pair${read.reason === "" ? "" : `: ${read.reason}`}.`);
  return { pairs: [...pairs.values()], ...read };
}

/** What a file leaves out, in a sentence; null if nothing. @param {Read} read */
function leftOut({ repeated, unreadable, reason }) {
  const parts = [];
  if (repeated > 0) parts.push(`${plural(repeated, "repeated pair")} will be left out.`);
  if (unreadable > 0) parts.push(`${plural(unreadable, "row")} will be left out: ${reason}.`);
  return parts.join(" ") || null;
}

/**
 * A file of pairs without labels for one set.
 * @param {object} props
 * @param {string} props.name The set.
 * @param {any} props.info The answer of GET /info.
 * @param {number} props.labelled Number of labeled pairs that the set has.
 * @param {(error: unknown) => void} props.report
 * @param {(file: File) => void} props.onDone
 */
export function PoolUpload({ name, info, labelled, report, onDone }) {
  const [file, setFile] = useState(/** @type {File | null} */ (null));
  const [asked, setAsked] = useState(/** @type {Read | null} */ (null));
  const [done, setDone] = useState(/** @type {{ judged: number, of: number } | null} */ (null));
  const [said, setSaid] = useState("");

  const read = async () => {
    setSaid("");
    setAsked(await pairsOf(/** @type {File} */ (file)));
  };
  const add = async () => {
    const { pairs } = /** @type {Read} */ (asked);
    const told = { added: 0, known: 0, failed: 0 };
    let judged = 0;
    setAsked(null);
    setDone({ judged, of: pairs.length });
    try {
      for (const comparisons of partsOf(pairs, info.limits)) {
        const answer = await post(ofSet(name, "/pool"), { comparisons });
        for (const what of /** @type {(keyof typeof told)[]} */ (Object.keys(told))) told[what] += answer[what];
        judged += comparisons.length;
        setDone({ judged, of: pairs.length });
      }
      setSaid(`${plural(told.added, "pair")} added; the set had ${count(told.known)} of them already, and ${count(told.failed)} could not be judged.`);
    } catch (problem) {
      // What was sent is in the pool: sending the file again adds the rest.
      report(problem);
    }
    setDone(null);
    if (judged > 0) onDone(/** @type {File} */ (file));
  };
  return html`<div class="upload">
    <label>File for the pool (JSON Lines, CSV or TSV)
      <input type="file" accept=".jsonl,.ndjson,.csv,.tsv" onChange=${(/** @type {any} */ e) => setFile(e.target.files[0] ?? null)} />
    </label>
    <p class="hint">With the columns question, response_a and response_b. You then label only those of them that the threshold needs.</p>
    <${Action} run=${read} report=${report} disabled=${file === null || done !== null}>Read and preview<//>
    ${done !== null &&
    html`<p role="status"><progress value=${done.judged} max=${done.of}></progress> ${count(done.judged)} of
      ${" "}${plural(done.of, "pair")} judged</p>`}
    ${said !== "" && html`<p role="status">${said}</p>`}
    ${asked !== null &&
    html`<${ChangeDialog}
      title=${`Add ${plural(asked.pairs.length, "pair")} without labels to ${name}?`}
      preview=${{ note: `The judge reads them now. Until all of them have labels, the set answers only under the guarantee pac, and only where the labels are enough${
        labelled > 0 ? `. It has ${plural(labelled, "labeled pair")}, and this ends its present verdicts: a new set would keep them` : ""}` }}
      more=${leftOut(asked)}
      confirm="Judge and add them"
      run=${add}
      onClose=${() => setAsked(null)}
    />`}
  </div>`;
}

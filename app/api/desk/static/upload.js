// Labeled pairs from a file: judged in parts, previewed, and added in one new version.
import { html, useState } from "./ui.js";
import { call, ofSet, post, Problem } from "./api.js";
import { count, plural } from "./format.js";
import { ChangeDialog } from "./change.js";
import { Action } from "./parts.js";

const FIELDS = ["question", "response_a", "response_b", "label"];

/**
 * Reads the rows of a file in JSON Lines, with the fields that a labeled pair has.
 * @param {string} text
 * @returns {Record<string, unknown>[]}
 */
function rowsOf(text) {
  const rows = [];
  for (const [place, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    let row;
    try {
      row = JSON.parse(line);
    } catch {
      throw new Problem(0, "unreadable_file", `Line ${place + 1} of the file is not JSON.`);
    }
    const missing = FIELDS.filter((field) => row?.[field] === undefined);
    if (missing.length > 0)
      throw new Problem(0, "unreadable_file", `Line ${place + 1} of the file has no ${missing.join(", no ")}.`);
    rows.push(Object.fromEntries(FIELDS.map((field) => [field, row[field]])));
  }
  if (rows.length === 0) throw new Problem(0, "unreadable_file", "The file has no rows.");
  return rows;
}

/** Rows in parts that one request takes. @param {Record<string, unknown>[]} rows @param {{ max_batch: number, max_body_bytes: number }} limits */
export function* partsOf(rows, limits) {
  let part = [];
  let bytes = 0;
  for (const row of rows) {
    const size = new TextEncoder().encode(JSON.stringify(row)).length + 1;
    if (part.length > 0 && (part.length >= Math.min(limits.max_batch, 100) || bytes + size > limits.max_body_bytes - 1024)) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(row);
    bytes += size;
  }
  yield part;
}

/**
 * A file of labeled pairs for one set.
 * @param {{ name: string, info: any, report: (error: unknown) => void, onDone: () => void }} props
 */
export function Upload({ name, info, report, onDone }) {
  const [file, setFile] = useState(/** @type {File | null} */ (null));
  const [done, setDone] = useState(/** @type {{ judged: number, of: number } | null} */ (null));
  const [asked, setAsked] = useState(/** @type {any} */ (null));

  const judge = async () => {
    if (file === null) throw new Problem(0, "no_file", "Choose a file first.");
    const rows = rowsOf(await file.text());
    const scored = { judge: "", fingerprint: "", examples: /** @type {any[]} */ ([]), failed: /** @type {any[]} */ ([]) };
    let judged = 0;
    setDone({ judged, of: rows.length });
    try {
      for (const examples of partsOf(rows, info.limits)) {
        const answer = await post("calibrate/scores", { calibration: name, examples });
        scored.judge = answer.judge;
        scored.fingerprint = answer.fingerprint;
        scored.examples.push(...answer.scores);
        scored.failed.push(...answer.errors);
        judged += examples.length;
        setDone({ judged, of: rows.length });
      }
    } finally {
      setDone(null);
    }
    if (scored.examples.length === 0) throw new Problem(0, "nothing", scored.failed[0].error.detail);
    const { failed, ...body } = scored;
    const preview = await post(ofSet(name, "/examples"), { ...body, dry_run: true });
    setAsked({ body, preview, failed: failed.length });
  };
  const add = async () => {
    await call("POST", ofSet(name, "/examples"), asked.body);
    setAsked(null);
    onDone();
  };
  return html`<div class="upload">
    <label>File of labeled pairs (JSON Lines)
      <input type="file" accept=".jsonl,.ndjson,.json" onChange=${(/** @type {any} */ e) => setFile(e.target.files[0] ?? null)} />
    </label>
    <p class="hint">One object a line: <code>${'{"question": "…", "response_a": "…", "response_b": "…", "label": "A"}'}</code>.
      A label is A, B or tie.</p>
    <${Action} run=${judge} report=${report} disabled=${file === null}>Judge and preview<//>
    ${done !== null &&
    html`<p role="status"><progress value=${done.judged} max=${done.of}></progress> ${count(done.judged)} of
      ${" "}${plural(done.of, "pair")} judged</p>`}
    ${asked !== null &&
    html`<${ChangeDialog}
      title=${`Add ${plural(asked.body.examples.length, "labeled pair")} to ${name}?`}
      preview=${asked.preview}
      more=${asked.failed > 0 ? `${plural(asked.failed, "pair")} could not be judged and will be left out.` : null}
      confirm="Add them"
      run=${add}
      report=${report}
      onClose=${() => setAsked(null)}
    />`}
  </div>`;
}

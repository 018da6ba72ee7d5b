// Pairs of a file go to the judge in parts, and come back with their scores.
import { post, Problem } from "./api.js";

/** Rows in parts that one request takes. @param {Record<string, unknown>[]} rows @param {{ max_batch: number, max_body_bytes: number }} limits */
function* partsOf(rows, limits) {
  /** @type {Record<string, unknown>[]} */
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
 * Judges pairs for a set, which does not change.
 * @param {string} name The set.
 * @param {import("./pair_rows.js").FilePair[]} pairs
 * @param {any} limits Of GET /info.
 * @param {(judged: number) => void} onJudged
 * @returns {Promise<{ body: any, kept: import("./pair_store.js").KeptPair[], failed: number }>} The body of POST
 *   /calibrations/{name}/examples, and the pairs without a label.
 */
export async function scored(name, pairs, limits, onJudged) {
  const body = { judge: "", fingerprint: "", examples: /** @type {any[]} */ ([]) };
  /** @type {import("./pair_store.js").KeptPair[]} */
  const kept = [];
  let judged = 0;
  let failed = 0;
  let reason = "";
  // The route wants a label of each pair; the scores of those without one go on without it.
  for (const part of partsOf(pairs.map(({ fields, label }) => ({ ...fields, label: label ?? "A" })), limits)) {
    const answer = await post("calibrate/scores", { calibration: name, examples: part });
    Object.assign(body, { judge: answer.judge, fingerprint: answer.fingerprint });
    const errors = new Set(answer.errors.map((/** @type {any} */ error) => error.index));
    failed += errors.size;
    reason ||= answer.errors[0]?.error.detail ?? "";
    const good = pairs.slice(judged, judged + part.length).filter((_, i) => !errors.has(i));
    for (const [i, score] of answer.scores.entries()) {
      const example = { ...score, label: good[i].label };
      body.examples.push(example);
      if (example.label === null) kept.push({ digest: score.digest, fields: good[i].fields, score: example });
    }
    judged += part.length;
    onJudged(judged);
  }
  if (body.examples.length === 0) throw new Problem(0, "nothing", `The judge failed on all pairs: ${reason}`);
  return { body, kept, failed };
}

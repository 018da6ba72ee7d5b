// The pool of a set: pairs without labels, which pac asks about in order, from a file of this browser.
import { html, useState } from "./ui.js";
import { get, ofSet, Problem } from "./api.js";
import { plural } from "./format.js";
import { matching, opened, textOf } from "./file_texts.js";

/** @typedef {import("./queue.js").Held} Held */
/** @typedef {import("./queue.js").Pair} Pair */

// More than a person labels before the next test.
const MOST = 200;

/** @returns {string} The alpha and delta for which the address labels the pool, as a query; "" if it does not. */
export function levelOfAddress() {
  const asked = new URLSearchParams(location.hash.split("?")[1]);
  const level = new URLSearchParams();
  for (const part of ["alpha", "delta"]) if (asked.has(part)) level.set(part, asked.get(part) ?? "");
  return level.toString();
}

/** The pairs of a pool that the next test needs and the open file has. */
export class Pool {
  /** @param {string} name The set. @param {string} level As of `levelOfAddress`; "" for no pair at all. @param {string} fingerprint Of the judge. */
  constructor(name, level, fingerprint) {
    this.name = name;
    this.fingerprint = fingerprint;
    this.path = level === "" ? null : ofSet(name, `/next?${level}&limit=${MOST}`);
    /** Digests that wait for a label, in the order of the service. @type {string[]} */
    this.digests = [];
    /** What the service says about the pool. @type {{ words: string, needed: number, complete: boolean } | null} */
    this.told = null;
  }

  /** Looks which pairs the next test needs. */
  async look() {
    if (this.path === null) return;
    const { digests, words, needed, complete } = await get(this.path);
    this.told = { words, needed, complete };
    this.digests = opened() === null ? [] : await matching(digests, this.fingerprint);
  }

  /**
   * The first pairs with their texts, on sides that look random.
   * @param {number} most
   * @param {string[]} without Digests of pairs to leave out.
   * @returns {Promise<Pair[]>}
   */
  async pairs(most, without) {
    const wanted = this.digests.filter((digest) => !without.includes(digest)).slice(0, most);
    return Promise.all(wanted.map(async (digest) => {
      const texts = await textOf(digest);
      if (texts === null) throw new Error("the file does not have a pair that it had");
      const { question, first, second, fields, isReversed } = texts;
      const isFirst = parseInt(digest[0], 16) % 2 === 0;
      const [left, right] = isFirst ? [first, second] : [second, first];
      return { id: digest, question, left, right, isPooled: true, fields, isSwapped: isFirst === isReversed };
    }));
  }

  /** The example that an answer makes, with the texts of its pair. @param {Held} held */
  exampleOf({ pair, choice }) {
    const label = choice === "tie" ? "tie" : (choice === "left") === pair.isSwapped ? "B" : "A";
    return { calibration: this.name, examples: [{ ...pair.fields, label }] };
  }

  /** @param {any} report The answer of POST /calibrate. @throws {Problem} The judge failed on the pair. */
  check(report) {
    if (report.failed > 0) throw new Problem(0, "judgment_failed", report.errors[0].error.detail);
  }
}

/**
 * The way to the pool, and what its labels cost.
 * @param {{ set: any, level: string, state: any }} props
 */
export function PoolCard({ set, level, state }) {
  const [alpha, setAlpha] = useState("0.1");
  const [delta, setDelta] = useState("0.1");
  const start = (/** @type {Event} */ event) => {
    event.preventDefault();
    location.hash = `#label/${set.name}?alpha=${encodeURIComponent(alpha)}&delta=${encodeURIComponent(delta)}`;
  };
  if (level !== "")
    return html`<section class="card" aria-label="Pool"><p>The pairs of the pool come after the audits, the surest ones first. The texts of a
      pair go to the judge again with its label. ${state.pool?.complete
        ? html`The threshold is known: see <a href=${`#sets/${set.name}`}>the set</a>.`
        : "The tests stop at the first pair without a label: if nobody can label a pair, choose Equally good, which leaves it out."}</p></section>`;
  return html`<details class="card"><summary>Label the pool: ${plural(set.unlabelled, "pair")} without a label</summary>
    <form onSubmit=${start}>
      <p class="hint">The service asks for the labels that the guarantee pac needs for one alpha and delta, and for no more. Choose both before the
        first label, and keep them. The texts come from the file of the pairs.</p>
      <div class="fields"><label>Alpha <input inputmode="decimal" required value=${alpha} onInput=${(/** @type {any} */ e) => setAlpha(e.target.value)} /></label>
        <label>Delta <input inputmode="decimal" required value=${delta} onInput=${(/** @type {any} */ e) => setDelta(e.target.value)} /></label>
        <button>Label the pool</button></div>
    </form>
  </details>`;
}

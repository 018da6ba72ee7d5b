// Pairs of a set that wait for a label: their texts are in this browser, and a session of labels becomes one version.
import { html, useEffect, useState } from "./ui.js";
import { call, get, ofSet, Problem } from "./api.js";
import { count, percent, plain, plural } from "./format.js";
import { PairFileField } from "./new_set.js";
import { KEPT, keepGoal, keepLabels, keepPairs, keptGoal, keptPairs, forgetPairs, unsavedGoal, unsavedLabels } from "./pair_store.js";
import { Action } from "./parts.js";
import { scored } from "./scoring.js";

/** @typedef {import("./queue.js").Pair} Pair */
/** @typedef {import("./pair_store.js").KeptPair} KeptPair */

const ALPHAS = [0.05, 0.1, 0.15, 0.2, 0.25];
const DELTA = 0.1;
const PAGE = 10_000;
// A browser sends no more than 64 KiB for a page that is closed.
const LEAVING = 200;

/** @param {string} name The set. @returns {string} What the labels are for: "all", an alpha, or "" for nothing. */
export const goalOf = (name) =>
  new URLSearchParams(location.hash.split("?")[1]).get("for") ?? unsavedGoal(name);

/** @param {string} name @returns {Promise<{ digest: string, label: string | null, gap_fwd: number, gap_rev: number | null }[]>} All pairs of a set. */
async function examplesOf(name) {
  const all = [];
  for (let after = ""; ; after = all.at(-1).digest) {
    const { examples } = await get(ofSet(name, `/examples?limit=${PAGE}${after === "" ? "" : `&after=${after}`}`));
    all.push(...examples);
    if (examples.length < PAGE) return all;
  }
}

/** How sure the judge is. @param {any} score */
const sureness = ({ gap_fwd, gap_rev }) => {
  const p = (/** @type {number} */ gap) => 1 / (1 + Math.exp(-gap));
  return Math.abs((gap_rev === null ? p(gap_fwd) : (p(gap_fwd) + p(gap_rev)) / 2) - 0.5);
};

/** The pairs of a set that wait for a label. */
export class Pool {
  /** @param {string} name The set. @param {string} goal As of `goalOf`. @param {any} info */
  constructor(name, goal, info) {
    this.name = name;
    this.goal = goal;
    this.info = info;
    /** Pairs without a label, in the order in which to label them. @type {KeptPair[]} */
    this.pairs = [];
    /** Labels that the service does not have yet. @type {Record<string, import("./pair_rows.js").Label>} */
    this.labels = {};
    /** Number of pairs without a label in the service, and with one. */
    this.open = 0;
    this.labelled = 0;
    /** Number of pairs with their texts here, and of those before the first one without. */
    this.here = 0;
    this.reach = 0;
    /** Number of pairs to label now, with those that have their label here. */
    this.wanted = 0;
    /** The threshold that the labels were for, once it is known. @type {any} */
    this.decided = null;
  }

  /** Looks which pairs have no label, and which of them have their texts here. */
  async look() {
    const texts = new Map((await keptPairs(this.name)).map((pair) => [pair.digest, pair]));
    if (this.goal === "" && texts.size === 0) return;
    const all = await examplesOf(this.name);
    const open = all.filter(({ label }) => label === null)
      .sort((one, other) => (this.goal === "all" ? one.digest.localeCompare(other.digest) : sureness(other) - sureness(one)));
    this.open = open.length;
    this.labelled = all.length - open.length;
    this.wanted = 0;
    if (open.length === 0) await forgetPairs(this.name);
    const known = open.filter(({ digest }) => texts.has(digest));
    this.pairs = known.map(({ digest }) => /** @type {KeptPair} */ (texts.get(digest)));
    this.here = known.length;
    // The tests of a promise take the pairs in their order; for all labels the order is nothing.
    const gap = this.goal === "all" ? -1 : open.findIndex(({ digest }) => !texts.has(digest));
    this.reach = gap < 0 ? this.here : gap;
    const digests = new Set(known.map(({ digest }) => digest));
    this.labels = Object.fromEntries(Object.entries(unsavedLabels(this.name)).filter(([digest]) => digests.has(digest)));
    if (this.goal !== "") await this.aim();
  }

  /** Decides how many pairs to label now: all, or those that the next test of the threshold needs. */
  async aim() {
    if (this.goal === "all" || this.open === 0) return void (this.wanted = this.pairs.length);
    const done = Object.keys(this.labels).length;
    if (this.wanted === 0) {
      const { needed, complete, feasible } = await get(ofSet(this.name, `/next?alpha=${this.goal}&delta=${DELTA}&limit=1`));
      this.wanted = Math.max(needed, done);
      if (complete) this.decided = { feasible };
    }
    while (this.decided === null && done >= this.wanted && done > 0) {
      // The next tests follow at each hundredth of the pairs.
      const preview = await call("POST", ofSet(this.name, "/examples"), { ...this.body(), dry_run: true });
      const row = preview.thresholds.find((/** @type {any} */ each) => each.guarantee === "pac" && each.alpha === Number(this.goal));
      if (row !== undefined && !row.labels_missing) this.decided = row;
      else if (this.wanted >= this.open) break;
      else this.wanted = Math.min(this.open, done + Math.max(3, Math.ceil(this.open / 100)));
      if (this.wanted > done) break;
    }
  }

  /** @returns {any} What the page shows of it. */
  get state() {
    const done = Object.keys(this.labels).length;
    const more = between((this.goal === "all" ? this.open : this.wanted) - done, this.open - done);
    const words = this.decided !== null
      ? `The promise of ${plain(Number(this.goal))} for this set is decided${this.decided.coverage === undefined ? "" : `: ${this.decided.feasible ? `${percent(this.decided.coverage)} of pairs get a verdict` : "no pair gets a verdict"}`}.`
      : `${count(this.labelled + done)} labeled${more === "0" ? "" : `, ${more} more`}.`;
    return { done, open: this.open, decided: this.decided, words };
  }

  /** The first pairs to label, on sides that look random. @param {number} most @param {string[]} without @returns {Pair[]} */
  next(most, without) {
    if (this.decided !== null) return [];
    const wanted = this.pairs.slice(0, Math.min(this.wanted, this.reach)).filter(({ digest }) => this.labels[digest] === undefined && !without.includes(digest));
    return wanted.slice(0, most).map(({ digest, fields }) => {
      const isSwapped = parseInt(digest[0], 16) % 2 === 0;
      const [left, right] = isSwapped ? [fields.response_b, fields.response_a] : [fields.response_a, fields.response_b];
      return { id: digest, question: fields.question, left, right, isPooled: true, isSwapped };
    });
  }

  /** @param {Pair} pair @param {string | null} choice Null takes the label back. */
  put(pair, choice) {
    if (keptGoal(this.name) === "" || this.labelled + Object.keys(this.labels).length === 0) keepGoal(this.name, this.goal);
    if (choice === null) delete this.labels[pair.id];
    else this.labels[pair.id] = choice === "tie" ? "tie" : (choice === "left") === pair.isSwapped ? "B" : "A";
    keepLabels(this.name, this.labels);
  }

  /** The labels as POST /calibrations/{name}/examples takes them. @param {number} [most] */
  body(most = Infinity) {
    const labeled = this.pairs.filter(({ digest }) => this.labels[digest] !== undefined).slice(0, most);
    return { fingerprint: this.info.fingerprint, examples: labeled.map(({ digest, score }) => ({ ...score, label: this.labels[digest] })) };
  }

  /** Sends the labels, as one version. */
  async save() {
    if (Object.keys(this.labels).length === 0) return;
    await call("POST", ofSet(this.name, "/examples"), this.body());
    keepLabels(this.name, {});
    await this.look();
  }

  /** Sends the labels of a page that is closed; this browser keeps them until it has seen them in the set. */
  leave() {
    if (Object.keys(this.labels).length > 0) call("POST", ofSet(this.name, "/examples"), this.body(LEAVING), { keepalive: true }).catch(() => undefined);
  }
}

/** The fewest and the most labels that may be needed. @param {number} least @param {number} most */
const between = (least, most) => (least === most ? count(least) : `${count(least)} to ${count(most)}`);

/** What to say of a promise beside what the labels of the set are for. @param {any} set @param {string} alpha @returns {string} */
function keepingOf(set, alpha) {
  const first = keptGoal(set.name);
  if (set.labelled === 0 && unsavedGoal(set.name) === "") return "Choose it before the first label, and keep it.";
  if (first === "" || first === "all") return "Choose the percentage with which the labeling began: a promise that is chosen after a look at labels does not hold.";
  return first === alpha ? "The labels so far are for it: keep it."
    : `The labels so far are for ${plain(Number(first))}: a promise that is chosen after a look at labels does not hold. Keep ${plain(Number(first))}, or make a new set.`;
}

/**
 * The ways to label the pairs of a set, each with its number.
 * @param {{ set: any, info: any, goal: string, here: number, onFile: () => void }} props `here` is the number of pairs with their texts.
 */
export function PoolCard({ set, info, goal, here, onFile }) {
  const isAlpha = (/** @type {string} */ each) => each !== "" && each !== "all";
  // The service does not know what another browser labels for.
  const [alpha, setAlpha] = useState([goal, keptGoal(set.name)].find(isAlpha) ?? (set.labelled > 0 || here === 0 ? "" : "0.1"));
  const [next, setNext] = useState(/** @type {any} */ (null));
  useEffect(() => {
    if (alpha === "") return;
    let current = true;
    get(ofSet(set.name, `/next?alpha=${alpha}&delta=${DELTA}&limit=1`)).then((answer) => current && setNext(answer), () => undefined);
    return () => void (current = false);
  }, [alpha, set.version]);
  const lacks = here < set.unlabelled;
  return html`<section class="card" aria-labelledby="pool-title">
    <h2 id="pool-title">Pairs to label: ${count(set.unlabelled)} of ${set.name}${set.labelled > 0 && `, ${count(set.labelled)} labeled`}</h2>
    ${lacks
      ? html`<${Texts} set=${set} info=${info} here=${here} onFile=${onFile} />`
      : html`<p class="hint">${KEPT}</p>`}
    <div class="ways">
      <div><p>A promise that holds for this set, of at most
          ${" "}<select aria-label="Promise" value=${alpha} onChange=${(/** @type {any} */ e) => setAlpha(e.target.value)}>${alpha === "" && html`<option value="">choose</option>`}${ALPHAS.map((each) => html`<option value=${String(each)}>${plain(each)}</option>`)}</select> wrong.
          ${" "}${keepingOf(set, alpha)}</p>
        ${alpha === "" ? null : next?.needed === 0
          ? next.feasible === false ? html`<p><strong>No pair gets a verdict at it</strong>, and no more labels of these pairs change that.</p>` : html`<p><strong>It has all labels that it needs</strong>: judge with alpha ${alpha}, delta ${DELTA} and the guarantee pac.</p>`
          : html`<a class=${`button ${goal === "" && !lacks ? "main" : ""}`} href=${`#label/${set.name}?for=${alpha}`} aria-current=${goal === alpha ? "true" : undefined}>Label what it needs: ${between(next?.needed, set.unlabelled)}${set.labelled > 0 && " more"}</a>`}</div>
      <div><p>Every promise, also those on average, and the curve of the set.</p>
        <a class="button" href=${`#label/${set.name}?for=all`} aria-current=${goal === "all" ? "true" : undefined}>Label all ${count(set.unlabelled)}</a></div>
    </div>
  </section>`;
}

/** The file of the texts, for a browser that does not have them. @param {{ set: any, info: any, here: number, onFile: () => void }} props */
function Texts({ set, info, here, onFile }) {
  const [read, setRead] = useState(/** @type {any} */ (null));
  const [judged, setJudged] = useState(0);
  const open = async () => {
    const { kept } = await scored(set.name, read.pairs.map((/** @type {any} */ pair) => ({ ...pair, label: null })), info.limits, setJudged);
    const ours = new Set((await examplesOf(set.name)).map(({ digest }) => digest));
    const found = kept.filter(({ digest }) => ours.has(digest));
    if (found.length === 0) throw new Problem(0, "other_file", `None of these ${plural(read.pairs.length, "pair")} is in ${set.name}. Open the file that the set was made from.`);
    await keepPairs(set.name, found);
    onFile();
  };
  return html`<div class="upload note"><p>The texts of ${plural(set.unlabelled - here, "pair")} are not in this browser. Open the file that has them; the judge reads its pairs again to find them.</p>
    <${PairFileField} label="File of these pairs" onRead=${setRead} />
    <div class="row"><${Action} kind="main" run=${open} disabled=${read === null} inputs=${[read]} waits=${`${plural(judged, "pair")} read…`}>Open<//></div></div>`;
}

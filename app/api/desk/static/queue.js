// The pairs that this tab labels: fetched ahead, and one answer held back for an undo.
import { useEffect, useRef, useState } from "./ui.js";
import { call, get, post, Problem } from "./api.js";
import { plural } from "./format.js";
import { Pool } from "./pool.js";

/**
 * @typedef {object} Pair
 * @property {string} id Id of the audit in the order left, right; the digest of a pair of the set.
 * @property {string} question
 * @property {string} left
 * @property {string} right
 * @property {boolean} isPooled Whether this is a pair of the set, whose label waits in this browser.
 * @property {boolean} [isSwapped] Whether response B of such a pair is on the left.
 */
/** @typedef {"left" | "right" | "tie" | "none"} Choice */
/** @typedef {{ pair: Pair, choice: Choice, reason?: string }} Held */

const TAKEN = 5;
const AHEAD = 3;
/** @type {Record<Choice, string>} */
const LABELS = { left: "A", right: "B", tie: "tie", none: "none" };

/** What happens in the queue between two pictures of it. */
class Queue {
  /**
   * @param {string} name The set; "" for all sets of the key.
   * @param {Pool} pool Pairs of the set itself, which come after the audits.
   * @param {(error: unknown) => void} report
   * @param {() => void} onSaved Called when the set has a new version.
   * @param {(state: any) => void} show Receives each new state.
   */
  constructor(name, pool, report, onSaved, show) {
    this.path = `audits?texts=true&limit=${TAKEN}${name === "" ? "" : `&calibration=${encodeURIComponent(name)}`}`;
    this.pool = pool;
    this.report = report;
    this.onSaved = onSaved;
    this.show = show;
    /** @type {Pair[]} */
    this.pairs = [];
    /** @type {Held | null} */
    this.held = null;
    /** Place in the order of the audits. */
    this.after = 0;
    /** @type {Set<string>} */
    this.done = new Set();
    /** Pairs that come back after all others. @type {Set<string>} */
    this.skipped = new Set();
    // Requests go one after the other, so that no answer is older than what was sent before it.
    this.tasks = Promise.resolve();
    this.working = 0;
    this.closed = false;
    /** Why the last request failed; null if it did not. @type {unknown} */
    this.problem = null;
    /** @type {{ open: number, without_texts: number } | null} */
    this.told = null;
  }

  tell() {
    if (this.closed || (this.told === null && this.problem === null)) return;
    const told = this.told ?? { open: 0, without_texts: 0 };
    const pool = this.pool.goal === "" ? null : this.pool.state;
    const waiting = `${told.open === 0 ? "No pair waits" : `${plural(told.open, "pair")} ${told.open === 1 ? "waits" : "wait"}`}.`;
    this.show({ ...told, words: pool !== null && told.open === 0 ? pool.words : waiting, pool, pair: this.pairs[0] ?? null, held: this.held, working: this.working > 0, here: this.pool.here, problem: this.problem });
  }

  /** Fetches pairs ahead, so that the next one is there at once. */
  async fill() {
    let turns = this.after === 0 ? 1 : 2;
    while (turns > 0 && this.pairs.length < AHEAD && !this.closed) {
      const { audits, open, without_texts, next_after } = await get(`${this.path}&after=${this.after}`);
      this.told = { open, without_texts };
      this.push(audits.map(auditOf));
      this.after = next_after ?? 0;
      if (next_after === null) turns -= 1;
    }
    if (this.pairs.length < AHEAD && !this.closed) this.push(this.pool.next(AHEAD, [...this.done, ...this.skipped]).map(pairOf));
    if (this.pairs.length === 0 && this.skipped.size > 0) {
      this.skipped.clear();
      await this.fill();
    }
    this.tell();
  }

  /** @param {Pair[]} pairs */
  push(pairs) {
    const known = new Set([...this.done, ...this.skipped, ...this.pairs.map((pair) => pair.id)]);
    this.pairs.push(...pairs.filter((pair) => !known.has(pair.id)));
  }

  /** Looks for pairs, also for those whose texts are here. */
  async look() {
    await this.pool.look();
    await this.fill();
  }

  /** @param {Choice} choice @param {string} [reason] Why the pair has no label. */
  answer(choice, reason) {
    const pair = this.pairs.shift();
    if (pair === undefined) return;
    const earlier = this.held;
    this.held = { pair, choice, reason };
    this.done.add(pair.id);
    if (pair.isPooled) this.pool.put(pair, choice);
    this.tell();
    this.work(async () => {
      if (pair.isPooled) await this.pool.aim();
      if (earlier !== null) await this.send(earlier);
      await this.fill();
    });
  }

  undo() {
    if (this.held === null) return;
    const { pair } = this.held;
    if (pair.isPooled) this.pool.put(pair, null);
    this.done.delete(this.held.pair.id);
    this.pairs.unshift(this.held.pair);
    this.held = null;
    this.tell();
  }

  skip() {
    const pair = this.pairs.shift();
    if (pair === undefined) return;
    this.skipped.add(pair.id);
    this.tell();
    this.work(() => this.fill());
  }

  /** Sends the answer that is held back. */
  finish() {
    const { held } = this;
    if (held === null) return;
    this.held = null;
    this.tell();
    this.work(async () => {
      await this.send(held);
      await this.fill();
    });
  }

  /** Saves the labels of the set, as one version. */
  save() {
    this.held = null;
    this.work(async () => {
      await this.pool.save();
      this.onSaved();
      await this.fill();
    });
  }

  /** @param {Held} held */
  async send(held) {
    if (held.pair.isPooled) return;
    try {
      this.note(await post("audits/labels", bodyOf(held)));
    } catch (error) {
      // The pair is shown again, so no answer is lost in silence.
      this.done.delete(held.pair.id);
      this.pairs.unshift(held.pair);
      this.tell();
      throw error;
    }
  }

  /** @param {any} report The answer of POST /audits/labels. */
  note({ labelled, closed, expired, earlier }) {
    if (this.told !== null) this.told.open -= labelled + closed;
    dispatchEvent(new Event("labeled"));
    if (earlier.length > 0) this.report(new Problem(0, "labeled", `${earlier[0].labeler} has labeled this pair first, and that label stays.`));
    else if (expired > 0) this.report(new Problem(0, "expired", "The time for this pair has ended, so it takes no label."));
  }

  /** Sends what is held back; `isClosing` if the page goes, too. @param {boolean} isClosing */
  leave(isClosing) {
    const { held } = this;
    this.held = null;
    this.pairs = [];
    if (held !== null && !held.pair.isPooled) call("POST", "audits/labels", bodyOf(held), { keepalive: true }).then(() => dispatchEvent(new Event("labeled")), this.report);
    if (isClosing) this.pool.leave();
    else if (this.pool.state.done > 0) this.work(() => this.pool.save().then(this.onSaved));
  }

  /** @param {() => Promise<void>} task */
  work(task) {
    this.working += 1;
    this.tasks = this.tasks.then(task).then(() => null, (problem) => problem).then((problem) => {
      // What was said of a service that answers again goes.
      if (problem !== null || this.problem !== null) this.report(problem);
      this.problem = problem;
      this.working -= 1;
      this.tell();
    });
  }
}

/** @param {Held} held */
const bodyOf = ({ pair, choice, reason }) => ({ labels: [{ id: pair.id, label: LABELS[choice], reason }] });

/** @param {any} audit @returns {Pair} */
const auditOf = ({ id, texts }) => pairOf({ id, question: texts.question, left: texts.response_a, right: texts.response_b, isPooled: false });

/** A pair with its texts as people read them. @param {any} pair @returns {Pair} */
const pairOf = (pair) => ({ ...pair, question: questionOf(pair.question), left: responseOf(pair.left), right: responseOf(pair.right) });

/** @param {string | { role: string, content: string }[]} question */
const questionOf = (question) =>
  typeof question === "string" ? question : question.map(({ role, content }) => `[${role}]\n${content}`).join("\n\n");

/** @param {string | string[]} response */
const responseOf = (response) =>
  typeof response === "string" ? response : response.map((text, i) => `[answer ${i + 1}]\n${text}`).join("\n\n");

/**
 * The queue as a view shows it.
 * @param {string} name
 * @param {string} goal What the labels of the set's own pairs are for; "" to label audits only.
 * @param {any} info
 * @param {(error: unknown) => void} report
 * @param {() => void} onSaved
 */
export function useQueue(name, goal, info, report, onSaved) {
  const [state, setState] = useState(/** @type {any} */ (null));
  const queue = useRef(/** @type {Queue | null} */ (null));
  useEffect(() => {
    const now = new Queue(name, new Pool(name, goal, info), report, onSaved, setState);
    queue.current = now;
    // Nobody answers a pair of the queue before.
    setState(null);
    now.work(() => now.look());
    const leave = () => now.leave(true);
    // A page that comes back from the browser's cache has sent what it held.
    const back = (/** @type {PageTransitionEvent} */ event) => event.persisted && now.work(() => now.fill());
    addEventListener("pagehide", leave);
    addEventListener("pageshow", back);
    return () => {
      removeEventListener("pagehide", leave);
      removeEventListener("pageshow", back);
      now.leave(false);
      now.closed = true;
    };
  }, [name, goal]);
  return {
    state,
    answer: (/** @type {Choice} */ choice, /** @type {string | undefined} */ reason = undefined) => queue.current?.answer(choice, reason),
    undo: () => queue.current?.undo(),
    skip: () => queue.current?.skip(),
    save: () => queue.current?.save(),
    finish: () => queue.current?.finish(),
    again: () => queue.current?.work(() => /** @type {Queue} */ (queue.current).look()),
  };
}

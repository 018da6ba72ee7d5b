// The queue of a set in this tab: pairs fetched ahead, and one answer held back for an undo.
import { useEffect, useRef, useState } from "./ui.js";
import { call, ofSet, post } from "./api.js";
import { textOf } from "./file_texts.js";
import { FileQueue } from "./label_file.js";
import { Pool } from "./pool.js";

/**
 * @typedef {object} Pair
 * @property {string} ticket
 * @property {string} question
 * @property {string} left
 * @property {string} right
 * @property {string | null} digest Null if the service has the texts.
 * @property {boolean} left_is_first
 * @property {boolean} is_pooled Whether this is a pair of the pool, whose ticket is its digest.
 * @property {Record<string, unknown>} [fields] Texts of the file for `POST /judge`; so with `isReversed`.
 * @property {boolean} [isReversed] Whether response B of the file comes first by its code points.
 * @property {string} leased_until
 */
/** @typedef {"left" | "right" | "tie" | "none"} Choice */
/** @typedef {{ ticket: string, choice: Choice, reason?: string }} Sent */
/** @typedef {{ pair: Pair, sent: Sent }} Held */

// The service gives at most five. The answer that is held back and one on its way are among them.
const TAKEN = 5;
const AHEAD = 3;
// The service takes so many digests of pairs whose texts a file has.
const MOST_NAMED = 200;

/** What happens in the queue between two pictures of it. */
class Queue {
  /**
   * @param {string} name The set.
   * @param {string | undefined} reviewer Name of the person who labels; undefined for that of the link.
   * @param {1 | 2} reviewers Number of people who label each pair.
   * @param {string} level Alpha and delta for which to label the pool; "" to label audits only.
   * @param {(error: unknown) => void} report
   * @param {(state: any) => void} show Receives each new state.
   */
  constructor(name, reviewer, reviewers, level, report, show) {
    this.reviewer = reviewer;
    this.reviewers = reviewers;
    this.path = ofSet(name, "/queue");
    this.file = new FileQueue(name);
    this.pool = new Pool(name, level);
    this.report = report;
    this.show = show;
    /** @type {Pair[]} */
    this.pairs = [];
    /** @type {Held | null} */
    this.held = null;
    /** @type {Set<string>} */
    this.done = new Set();
    /** Pairs that were skipped, until the service knows it. @type {Set<string>} */
    this.skipped = new Set();
    // Requests go one after the other, so that no answer is older than what was sent before it.
    this.tasks = Promise.resolve();
    this.working = 0;
    this.closed = false;
    /** @type {any} */
    this.told = null;
  }

  tell(/** @type {any} */ told = null) {
    if (told !== null) this.told = { ...this.told, ...told };
    if (!this.closed && this.told !== null) this.show({ ...this.told, ...this.ofPool(), matched: this.file.digests.length, pair: this.pairs[0] ?? null, held: this.held, working: this.working > 0 });
  }

  /** What the view shows of the pool instead of the audits. */
  ofPool() {
    const { told, digests } = this.pool;
    return told === null ? { pool: null } : { words: told.words, pool: { ...told, here: digests.length } };
  }

  /** Fetches pairs ahead, so that the next one is there at once. */
  async fill() {
    if (this.closed || this.pairs.length >= AHEAD) return;
    const asked = { take: TAKEN, reviewer: this.reviewer, reviewers: this.reviewers, digests: [...this.file.digests, ...this.pool.digests].slice(0, MOST_NAMED) };
    const { pairs, ...told } = await post(this.path, asked);
    const shown = await Promise.all(pairs.map(withTexts));
    // Asking again gives the same pairs.
    const known = new Set([...this.done, ...this.skipped, ...this.pairs.map((pair) => pair.ticket)]);
    this.pairs.push(...shown.filter((/** @type {Pair} */ pair) => !known.has(pair.ticket)));
    this.tell(told);
  }

  /** Looks for pairs, also in the file that is open. */
  async look() {
    await this.file.look();
    await this.pool.look(this.file.fingerprint);
    // Pairs of a file that was closed stay until they have an answer.
    await this.fill();
    this.tell();
  }

  /** @param {Choice} choice @param {string} [reason] Why the pair has no label. */
  answer(choice, reason) {
    const pair = this.pairs.shift();
    if (pair === undefined) return;
    const earlier = this.held;
    const sent = { ticket: pair.ticket, choice };
    this.held = { pair, sent: reason === undefined ? sent : { ...sent, reason } };
    this.done.add(pair.ticket);
    this.tell();
    this.work(async () => {
      if (earlier !== null) await this.send(earlier);
      await this.fill();
    });
  }

  undo() {
    if (this.held === null) return;
    this.done.delete(this.held.pair.ticket);
    this.pairs.unshift(this.held.pair);
    this.held = null;
    this.tell();
  }

  skip() {
    const pair = this.pairs.shift();
    if (pair === undefined) return;
    this.skipped.add(pair.ticket);
    this.tell();
    this.work(async () => {
      await post(`${this.path}/release`, { tickets: [pair.ticket], reviewer: this.reviewer });
      this.skipped.delete(pair.ticket);
      await this.fill();
    });
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

  /** @param {Held} held */
  async send(held) {
    try {
      if (held.pair.is_pooled) await this.sendPooled(held);
      else await this.sendAudit(held);
    } catch (error) {
      // The pair is shown again, so no answer is lost in silence.
      this.done.delete(held.pair.ticket);
      this.pairs.unshift(held.pair);
      this.tell();
      throw error;
    }
  }

  /** @param {Held} held */
  async sendAudit(held) {
    const { errors, words, open, disagreements, leased, without_texts } = await post(this.pathOf(held), this.bodyOf(held));
    if (held.pair.digest !== null) this.file.remove(held.pair.digest);
    this.tell({ words, open, disagreements, leased, without_texts });
    if (errors.length > 0) this.report(new Error(errors[0].error.detail));
  }

  /** @param {Held} held */
  async sendPooled(held) {
    this.pool.check(await post(this.pathOf(held), this.bodyOf(held)));
    await this.pool.look(this.file.fingerprint);
    this.tell();
  }

  /** Sends what is held back and gives the other pairs back, also while the page is closed. */
  leave() {
    const { held, pairs } = this;
    this.held = null;
    this.pairs = [];
    const last = { keepalive: true };
    if (held !== null) call("POST", this.pathOf(held), this.bodyOf(held), last).catch(this.report);
    // A pair that is not given back comes back by itself when its lease ends.
    const tickets = pairs.map((pair) => pair.ticket);
    const released = { tickets, reviewer: this.reviewer };
    if (tickets.length > 0) call("POST", `${this.path}/release`, released, last).catch(() => undefined);
  }

  /** @param {Held} held */
  pathOf(held) {
    return held.pair.is_pooled ? "calibrate" : `${this.path}/answers`;
  }

  /** @param {Held} held */
  bodyOf(held) {
    if (held.pair.is_pooled) return this.pool.exampleOf(held);
    return { answers: [held.sent], reviewer: this.reviewer, reviewers: this.reviewers };
  }

  /** @param {() => Promise<void>} task */
  work(task) {
    this.working += 1;
    this.tasks = this.tasks.then(task).catch(this.report).then(() => {
      this.working -= 1;
      this.tell();
    });
  }
}

/** @param {any} pair @returns {Promise<Pair>} The pair with its texts, of the service or of the file. */
async function withTexts(pair) {
  if (pair.digest === null) return pair;
  const texts = await textOf(pair.digest);
  if (texts === null) throw new Error("the file does not have a pair that it had");
  const [left, right] = pair.left_is_first ? [texts.first, texts.second] : [texts.second, texts.first];
  return { ...pair, question: texts.question, left, right, fields: texts.fields, isReversed: texts.isReversed };
}

/**
 * The queue of a set as a view shows it.
 * @param {string} name
 * @param {string | undefined} reviewer
 * @param {1 | 2} reviewers
 * @param {string} level
 * @param {(error: unknown) => void} report
 */
export function useQueue(name, reviewer, reviewers, level, report) {
  const [state, setState] = useState(/** @type {any} */ (null));
  const [failed, setFailed] = useState(false);
  const queue = useRef(/** @type {Queue | null} */ (null));
  useEffect(() => {
    const now = new Queue(name, reviewer, reviewers, level, report, setState);
    queue.current = now;
    // Nobody answers a pair of the queue before.
    setState(null);
    setFailed(false);
    now.work(() =>
      now.look().catch((error) => {
        setFailed(true);
        throw error;
      }),
    );
    const leave = () => now.leave();
    // A page that comes back from the browser's cache has given its pairs back.
    const back = (/** @type {PageTransitionEvent} */ event) => event.persisted && now.work(() => now.fill());
    addEventListener("pagehide", leave);
    addEventListener("pageshow", back);
    return () => {
      removeEventListener("pagehide", leave);
      removeEventListener("pageshow", back);
      now.leave();
      now.closed = true;
    };
  }, [name, reviewer, reviewers, level]);
  return {
    state,
    failed,
    answer: (/** @type {Choice} */ choice, /** @type {string | undefined} */ reason = undefined) => queue.current?.answer(choice, reason),
    undo: () => queue.current?.undo(),
    skip: () => queue.current?.skip(),
    finish: () => queue.current?.finish(),
    again: () => queue.current?.work(() => /** @type {Queue} */ (queue.current).look()),
  };
}

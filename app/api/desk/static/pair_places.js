// The places of pairs in a file by their digests, and the texts at a place.
import { comesAfter, digestOf } from "./digest.js";
import { delimiterOf, Ends, FileProblem, formatOf, pairOf } from "./pair_rows.js";

/** @typedef {import("./pair_rows.js").Format} Format */
/** @typedef {import("./digest.js").Comparison} Comparison */
/** @typedef {{ row: Uint8Array, start: number, end: number }} Row A row, its first byte in the file, and the byte after it. */
/** @typedef {{ rows: Row[], format: Format, read: number }} Block Rows, and the number of bytes that are read. */

const BLOCK = 2 ** 20;
const HEAD = 2 ** 16;
// A judge takes far less.
const LONGEST_ROW = 2 ** 26;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

/** @param {Blob} file @param {number} start @param {number} end */
const bytesOf = async (file, start, end) => new Uint8Array(await file.slice(start, end).arrayBuffer());

/** @param {Uint8Array} head The beginning of a file. @returns {Ends} */
function endsOf(head) {
  const text = new TextDecoder().decode(head).trimStart();
  return new Ends(/^[{[]/.test(text) ? null : delimiterOf(text.split("\n", 1)[0]));
}

/**
 * The rows of a file without its header.
 * @param {Blob} file
 * @param {number} [size] Bytes of a block.
 * @returns {AsyncGenerator<Block>}
 * @throws {FileProblem} The page cannot read such files.
 */
export async function* rowsOf(file, size = BLOCK) {
  const head = await bytesOf(file, 0, HEAD);
  const ends = endsOf(head);
  let at = BYTE_ORDER_MARK.every((byte, i) => head[i] === byte) ? 3 : 0;
  let start = at;
  let rest = new Uint8Array(0);
  /** @type {Format | null} */
  let format = null;
  while (at < file.size) {
    const block = await bytesOf(file, at, at + size);
    at += block.length;
    const whole = new Uint8Array(rest.length + block.length);
    whole.set(rest);
    whole.set(block, rest.length);
    /** @type {Row[]} */
    const rows = [];
    let done = 0;
    const take = (/** @type {number} */ end) => {
      const row = whole.subarray(done, end);
      const place = { row, start: start + done, end: start + end };
      done = end;
      if (format !== null) rows.push(place);
      else if (row.some((byte) => byte > 0x20)) {
        format = formatOf(row);
        if (format.kind === "lines") rows.push(place);
      }
    };
    ends.read(block, (end) => take(rest.length + end));
    if (at >= file.size && done < whole.length) take(whole.length);
    rest = whole.slice(done);
    start += done;
    if (rest.length > LONGEST_ROW) throw new FileProblem("a row has more than 64 MB");
    if (format !== null) yield { rows, format, read: at };
  }
}

/** The places of the pairs of one file for one judge. */
export class Places {
  /** @param {Blob} file @param {string} fingerprint */
  constructor(file, fingerprint) {
    this.file = file;
    this.fingerprint = fingerprint;
    /** @type {Format} */
    this.format = { kind: "lines" };
    /** Digest -> first byte of the row, and the byte after it. @type {Map<string, [number, number]>} */
    this.places = new Map();
    this.rows = 0;
    this.unreadable = 0;
    /** Why the first row without a pair has none. */
    this.reason = "";
  }

  /**
   * Reads the whole file.
   * @param {(read: number) => void} onRead Receives the number of bytes that are read.
   * @throws {FileProblem} The page cannot read the file, or it has no pair.
   */
  async find(onRead) {
    for await (const { rows, format, read } of rowsOf(this.file)) {
      this.format = format;
      for (const row of rows) this.add(row);
      onRead(read);
    }
    if (this.places.size === 0)
      throw new FileProblem(this.reason === "" ? "the file has no rows" : `no row of the file is a pair: ${this.reason}`);
  }

  /** @param {Row} row */
  add({ row, start, end }) {
    try {
      const pair = pairOf(row, this.format);
      if (pair === null) return;
      this.rows += 1;
      const digest = digestOf(this.fingerprint, pair);
      if (!this.places.has(digest)) this.places.set(digest, [start, end]);
    } catch (problem) {
      if (!(problem instanceof FileProblem)) throw problem;
      this.unreadable += 1;
      this.reason ||= problem.message;
    }
  }

  /**
   * The texts of a pair as people read them.
   * @param {string} digest
   * @returns {Promise<import("./file_texts.js").FileTexts | null>} Null if the file does not have it.
   * @throws {FileProblem} The file has changed.
   */
  async texts(digest) {
    const place = this.places.get(digest);
    if (place === undefined) return null;
    const pair = pairOf(await bytesOf(this.file, ...place), this.format);
    if (pair === null || digestOf(this.fingerprint, pair) !== digest) throw new FileProblem("the file has changed: open it again");
    const [a, b] = [answerText(pair.a), answerText(pair.b)];
    const isReversed = comesAfter(pair.a, pair.b);
    return { question: questionText(pair), first: isReversed ? b : a, second: isReversed ? a : b, isReversed, fields: fieldsOf(pair) };
  }
}

/** @param {Comparison} pair @returns {string} The turns, one below the other. */
const questionText = ({ question }) =>
  question.length === 1 && question[0][0] === "user"
    ? question[0][1]
    : question.map(([role, content]) => `[${role}]\n${content}`).join("\n\n");

/** @param {string[]} answers */
const answerText = (answers) =>
  answers.length === 1 ? answers[0] : answers.map((text, i) => `[answer ${i + 1}]\n${text}`).join("\n\n");

/** @param {Comparison} pair @returns {Record<string, unknown>} The fields of `POST /judge`. */
export const fieldsOf = ({ question, a, b }) => ({
  question: question.map(([role, content]) => ({ role, content })),
  response_a: a.length === 1 ? a[0] : a,
  response_b: b.length === 1 ? b[0] : b,
});

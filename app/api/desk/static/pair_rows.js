// The pairs of a file, as the commands read them (docs/guides/files.md): JSON Lines, JSON, CSV and TSV in UTF-8.

/** @typedef {"A" | "B" | "tie"} Label */
/** @typedef {{ fields: Record<string, unknown>, label: Label | null }} FilePair A pair in the form of `POST /judge`. */
/** @typedef {{ question: string, response_a: string, response_b: string, label: string }} Columns Names of columns; "" for no label. */
/** @typedef {{ pairs: FilePair[], names: string[], labelled: number, repeated: number, unreadable: number, reason: string }} PairFile */

/** A sentence about a file or a row that cannot be read. */
export class FileProblem extends Error {}
export const NO_COLUMNS = "there is no question, response_a and response_b";

const SHEET = "an Excel or Word file: save the sheet as CSV UTF-8";
/** How files begin that are no text. */
const SIGNS = { PK: SHEET, "\u00d0\u00cf": SHEET, "%PDF": "a PDF, and pairs need a table, such as CSV UTF-8", "\u001f\u008b": "compressed: unpack it first", "(\u00b5": "compressed: unpack it first", PAR1: "a Parquet file: save it as CSV or JSON Lines" };

const LARGEST = 2 ** 28;
/** @type {Columns[]} */
const LAYOUTS = [
  { question: "question", response_a: "response_a", response_b: "response_b", label: "label" },
  { question: "prompt", response_a: "chosen", response_b: "rejected", label: "" },
];
const ROLES = new Map(Object.entries({ system: "system", developer: "system", user: "user", human: "user", assistant: "assistant", gpt: "assistant" }));
const MESSAGES = /^\[?\s*\{\s*["'](role|content|from|value|messages|tools)["']\s*:/;
const WORDS = {
  A: ["a", "model_a", "response_a", "left", "[[a]]"],
  B: ["b", "model_b", "response_b", "right", "[[b]]"],
  tie: ["tie", "draw", "both_bad", "tie (bothbad)", "bothbad"],
};
const LABELS = new Map(Object.entries(WORDS).flatMap(([label, words]) => words.map((word) => [word, /** @type {Label} */ (label)])));

/** @param {string} row @param {string} delimiter @returns {string[]} The cells of one row of a table. */
function cellsOf(row, delimiter) {
  const cells = [];
  for (let at = 0; ; at += 1) {
    let cell = "";
    if (row[at] === '"') {
      for (;;) {
        const close = row.indexOf('"', at + 1);
        if (close === -1) throw new FileProblem("a quoted text does not end");
        cell += row.slice(at + 1, close);
        at = close + 1;
        if (row[at] !== '"') break;
        cell += '"';
      }
      if (at < row.length && row[at] !== delimiter) throw new FileProblem("there is text after a quoted one");
    } else {
      const next = row.indexOf(delimiter, at);
      cell = row.slice(at, next === -1 ? row.length : next);
      at += cell.length;
    }
    cells.push(cell);
    if (at >= row.length) return cells;
  }
}

/** The rows of a table; a quoted cell may have line ends. @param {string} text @param {string} delimiter @returns {string[]} */
function tableRows(text, delimiter) {
  const rows = [];
  let start = 0;
  let quoted = false;
  const ends = new RegExp(`"|\\r?\\n|\\r?$`, "g");
  for (const { 0: sign, index } of text.matchAll(ends)) {
    // A quote opens a cell only at its beginning.
    if (sign === '"') quoted = quoted ? false : index === start || text[index - 1] === delimiter || text[index - 1] === '"';
    else if (!quoted) {
      rows.push(text.slice(start, index));
      start = index + sign.length;
    }
  }
  if (start < text.length) rows.push(text.slice(start));
  return rows.filter((row) => row.trim() !== "");
}

/** @param {string} line @returns {string} The delimiter of a table, by its first line. */
function delimiterOf(line) {
  const counted = ["\t", ",", ";"].map((each) => ({ each, n: line.split(each).length }));
  return counted.reduce((best, other) => (other.n > best.n ? other : best)).each;
}

/** @param {string} text @returns {any} Undefined if the text is not JSON. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {string} cell @returns {unknown} Messages if the cell is a list of them, or else its text. */
function valueOf(cell) {
  if (!MESSAGES.test(cell)) return cell;
  const value = parsed(cell);
  if (value === undefined && !cell.startsWith("{")) throw new FileProblem("messages in a cell are not JSON");
  return isMessage(value) ? value : cell;
}

/** @param {any} value @returns {boolean} */
function isMessage(value) {
  if (Array.isArray(value)) return value.every(isMessage);
  if (typeof value !== "object" || value === null) return false;
  return "role" in value || ("from" in value && "value" in value) || "messages" in value;
}

/**
 * The rows of a file, each read when it is called.
 * @param {Blob} file
 * @returns {Promise<(() => any)[]>}
 * @throws {FileProblem} The page cannot read such files.
 */
export async function rowsOf(file) {
  if (file.size > LARGEST) throw new FileProblem("the file has more than 256 MB: add it in a terminal, with `scope-judge calibrate`");
  const bytes = new Uint8Array(await file.arrayBuffer());
  const start = String.fromCharCode(...bytes.slice(0, 4));
  for (const [sign, kind] of Object.entries(SIGNS)) if (start.startsWith(sign)) throw new FileProblem(`it is ${kind}`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new FileProblem("its text is not UTF-8: in Excel, save it as CSV UTF-8");
  }
  const sign = text.trimStart()[0];
  if (sign === "[") {
    const rows = parsed(text);
    if (rows === undefined) throw new FileProblem("the file looks like a JSON array and is not JSON");
    return rows.map((/** @type {unknown} */ row) => () => row);
  }
  if (sign === "{") {
    const lines = text.split("\n").filter((line) => line.trim() !== "");
    if (parsed(lines[0]) === undefined) throw new FileProblem("the first line is not JSON: JSON Lines has one object a line");
    return lines.map((line) => () => parsed(line));
  }
  const delimiter = delimiterOf(text.split("\n", 1)[0]);
  const [header, ...rows] = tableRows(text, delimiter);
  if (header === undefined) throw new FileProblem("it has no rows");
  const names = cellsOf(header, delimiter).map((name) => name.trim());
  return rows.map((row) => () => {
    const cells = cellsOf(row, delimiter);
    if (cells.length !== names.length) throw new FileProblem(`there are ${cells.length} cells, and the header has ${names.length}`);
    return Object.fromEntries(names.map((name, i) => [name, valueOf(cells[i])]).filter(([, value]) => value !== ""));
  });
}

/** @param {any} row @param {Columns | null} columns Null for the columns that the commands know. @returns {FilePair} @throws {FileProblem} The row has no pair. */
export function pairOf(row, columns = null) {
  if (typeof row !== "object" || row === null || Array.isArray(row)) throw new FileProblem("this is not a JSON object");
  const texts = (/** @type {Columns} */ layout) => [layout.question, layout.response_a, layout.response_b].map((name) => row[name]);
  const layout = columns ?? LAYOUTS.find((each) => texts(each).every((text) => text !== undefined));
  if (layout === undefined || texts(layout).some((text) => text === undefined)) throw new FileProblem(NO_COLUMNS);
  const [question, a, b] = texts(layout);
  const [one, other] = [responseOf(a), responseOf(b)];
  const short = (/** @type {string[]} */ response) => (response.length === 1 ? response[0] : response);
  const turns = typeof question === "string" ? question : messagesOf(question);
  return { fields: { question: turns, response_a: short(one), response_b: short(other) }, label: layout === LAYOUTS[1] ? "A" : labelOf(row[layout.label]) };
}

/** @param {any} value @returns {Label | null} */
function labelOf(value) {
  if (value === undefined || value === null || String(value).trim() === "") return null;
  const label = LABELS.get(String(value).trim().toLowerCase());
  if (label === undefined) throw new FileProblem(`the label ${String(value).slice(0, 20)} is not A, B or tie: rename such labels, or add the file in a terminal, with \`scope-judge calibrate FILE --name SET --map "label=COLUMN,A=WORD,B=WORD"\``);
  return label;
}

/** @param {any} value @returns {string[]} */
function responseOf(value) {
  if (typeof value === "string") return [value];
  if (Array.isArray(value) && value.length > 0 && value.every((part) => typeof part === "string")) return value;
  const messages = messagesOf(Array.isArray(value) ? value : [value]);
  if (messages.length !== 1 || messages[0].role !== "assistant") throw new FileProblem("a response is not one message of the assistant");
  return [messages[0].content];
}

/** @param {any} value @returns {{ role: string, content: string }[]} */
function messagesOf(value) {
  if (!Array.isArray(value) || value.length === 0) throw new FileProblem("a question is neither a text nor a list of messages");
  return value.map((message) => {
    const spelled = message?.role ?? message?.from;
    const role = typeof spelled === "string" ? ROLES.get(spelled.toLowerCase()) : undefined;
    if (role === undefined || message.tool_calls || message.function_call) throw new FileProblem("a message is not one of a user, an assistant or the system");
    return { role, content: contentOf(message.content ?? message.value) };
  });
}

/** @param {any} value @returns {string} */
function contentOf(value) {
  if (typeof value === "string") return value;
  const isText = (/** @type {any} */ part) => ["text", "input_text", "output_text"].includes(part?.type) && typeof part.text === "string";
  if (Array.isArray(value) && value.every(isText)) return value.map((part) => part.text).join("\n");
  throw new FileProblem("a message is more than text");
}

/** @param {FilePair} pair @returns {[string, Label | null]} The same for a pair in both orders of its responses, and its label in one of them. */
function canonical({ fields, label }) {
  const [a, b] = [fields.response_a, fields.response_b].map((text) => JSON.stringify(text));
  const turned = a > b;
  return [JSON.stringify([fields.question, turned ? [b, a] : [a, b]]), turned && label !== null && label !== "tie" ? (label === "A" ? "B" : "A") : label];
}

/**
 * The pairs of a file, without repeated ones; rows that contradict each other do not count.
 * @param {Blob} file
 * @param {Columns | null} columns Null for the columns that the commands know.
 * @returns {Promise<PairFile>} Without pairs if the file has other columns.
 * @throws {FileProblem} The page cannot read such files.
 */
export async function pairsOf(file, columns) {
  const rows = await rowsOf(file);
  const read = { repeated: 0, unreadable: 0, reason: "" };
  const names = new Set(/** @type {string[]} */ ([]));
  // The label is undefined where rows contradict each other.
  /** @type {Map<string, { pair: FilePair, label: Label | null | undefined }>} */
  const pairs = new Map();
  const refuse = (/** @type {string} */ reason) => {
    read.unreadable += 1;
    read.reason ||= reason;
  };
  for (const row of rows)
    try {
      const value = row();
      if (names.size < 100 && typeof value === "object" && value !== null) for (const name of Object.keys(value)) names.add(name);
      const pair = pairOf(value, columns);
      const [key, label] = canonical(pair);
      const known = pairs.get(key);
      if (known === undefined) pairs.set(key, { pair, label });
      else if (known.label === label) read.repeated += 1;
      else {
        refuse("two rows of one pair have different labels");
        known.label = undefined;
      }
    } catch (problem) {
      if (!(problem instanceof FileProblem)) throw problem;
      refuse(problem.message);
    }
  const all = [...pairs.values()];
  const found = all.filter(({ label }) => label !== undefined).map(({ pair }) => pair);
  read.unreadable += all.length - found.length;
  return { pairs: found, names: [...names], labelled: found.filter((pair) => pair.label !== null).length, ...read };
}

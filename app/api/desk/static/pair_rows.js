// Rows of a file of pairs, as the commands read them (docs/guides/files.md): JSON Lines, CSV and TSV in UTF-8.

/** @typedef {import("./digest.js").Comparison} Comparison */
/** @typedef {import("./digest.js").Turns} Turns */
/** @typedef {{ kind: "lines" } | { kind: "table", delimiter: string, columns: string[] }} Format */

/** A sentence about a file or a row that cannot be read. */
export class FileProblem extends Error {}

const [LINE_END, QUOTE] = [0x0a, 0x22];
const COLUMNS = [
  ["question", "response_a", "response_b"],
  ["prompt", "chosen", "rejected"],
];
const ROLES = new Map(Object.entries({ system: "system", developer: "system", user: "user", human: "user", assistant: "assistant", gpt: "assistant" }));
const MESSAGES = /^\[?\s*\{\s*["'](role|content|from|value|messages|tools)["']\s*:/;

/** Finds the ends of rows in the bytes of a file; a quoted cell of a table may have line ends. */
export class Ends {
  /** @param {string | null} delimiter Of a table; null for JSON Lines. */
  constructor(delimiter) {
    this.delimiter = delimiter === null ? -1 : delimiter.charCodeAt(0);
    this.isTable = delimiter !== null;
    /** Where the last byte was. @type {"start" | "plain" | "quoted" | "quote"} */
    this.at = "start";
  }

  /** @param {Uint8Array} bytes @param {(end: number) => void} onEnd Receives the index after each line end. */
  read(bytes, onEnd) {
    if (!this.isTable) {
      for (let i = bytes.indexOf(LINE_END); i !== -1; i = bytes.indexOf(LINE_END, i + 1)) onEnd(i + 1);
      return;
    }
    let at = this.at;
    for (let i = 0; i < bytes.length; i++) {
      const byte = bytes[i];
      if (at === "quoted") {
        if (byte === QUOTE) at = "quote";
      } else if (byte === QUOTE && at !== "plain") at = "quoted";
      else if (byte === LINE_END) {
        onEnd(i + 1);
        at = "start";
      } else at = byte === this.delimiter ? "start" : "plain";
    }
    this.at = at;
  }
}

/** @param {string} row @param {string} delimiter @returns {string[]} The cells of one row of a table. */
export function cellsOf(row, delimiter) {
  const cells = [];
  let at = 0;
  const end = row.endsWith("\r\n") ? row.length - 2 : row.endsWith("\n") ? row.length - 1 : row.length;
  for (;;) {
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
      if (at < end && row[at] !== delimiter) throw new FileProblem("there is text after a quoted one");
    } else {
      const next = row.indexOf(delimiter, at);
      const stop = next === -1 ? end : next;
      cell = row.slice(at, stop);
      at = stop;
    }
    cells.push(cell);
    if (at >= end) return cells;
    at += 1;
  }
}

/** @param {string} text @returns {any} Undefined if the text is not JSON. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {Uint8Array} bytes @returns {string} */
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new FileProblem("the text is not UTF-8");
  }
}

/**
 * How a file is written.
 * @param {Uint8Array} first The first row that is not empty, without a byte order mark.
 * @returns {Format}
 * @throws {FileProblem} The page cannot read such files.
 */
export function formatOf(first) {
  if ((first[0] === 0x1f && first[1] === 0x8b) || (first[0] === 0x28 && first[1] === 0xb5)) throw new FileProblem("the file is compressed: unpack it first");
  const text = textOf(first);
  if (text.startsWith("PAR1") || text.trimStart().startsWith("["))
    throw new FileProblem("the page reads JSON Lines, CSV and TSV: save the file as one of these");
  if (text.trimStart().startsWith("{")) {
    if (parsed(text) === undefined) throw new FileProblem("the first line is not JSON: JSON Lines has one object a line");
    return { kind: "lines" };
  }
  const delimiter = delimiterOf(text);
  return { kind: "table", delimiter, columns: cellsOf(text, delimiter).map((name) => name.trim()) };
}

/** @param {string} line @returns {string} The delimiter of a table, by its first line. */
export function delimiterOf(line) {
  const counted = ["\t", ",", ";"].map((each) => ({ each, n: line.split(each).length }));
  return counted.reduce((best, other) => (other.n > best.n ? other : best)).each;
}

/**
 * The pair of a row.
 * @param {Uint8Array} bytes The row.
 * @param {Format} format
 * @returns {Comparison | null} Null for an empty row.
 * @throws {FileProblem} The row has no pair.
 */
export function pairOf(bytes, format) {
  const text = textOf(bytes);
  if (text.trim() === "") return null;
  const row = format.kind === "lines" ? parsed(text) : tableRow(text, format);
  if (typeof row !== "object" || row === null || Array.isArray(row)) throw new FileProblem("this is not a JSON object");
  const columns = COLUMNS.find((names) => names.every((name) => row[name] !== undefined));
  if (columns === undefined) throw new FileProblem("there is no question, response_a and response_b");
  const [question, a, b] = columns.map((name) => row[name]);
  return { question: turnsOf(question), a: responseOf(a), b: responseOf(b) };
}

/** @param {string} text @param {{ delimiter: string, columns: string[] }} format */
function tableRow(text, { delimiter, columns }) {
  const cells = cellsOf(text, delimiter);
  if (cells.length !== columns.length) throw new FileProblem(`there are ${cells.length} cells, and the header has ${columns.length}`);
  return Object.fromEntries(columns.map((name, i) => [name, valueOf(cells[i])]).filter(([, value]) => value !== ""));
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

/** @param {unknown} value @returns {Turns} */
const turnsOf = (value) => (typeof value === "string" ? [["user", value]] : messagesOf(value));

/** @param {any} value @returns {string[]} */
function responseOf(value) {
  if (typeof value === "string") return [value];
  if (Array.isArray(value) && value.length > 0 && value.every((part) => typeof part === "string")) return value;
  const messages = messagesOf(Array.isArray(value) ? value : [value]);
  if (messages.length !== 1 || messages[0][0] !== "assistant") throw new FileProblem("a response is not one message of the assistant");
  return [messages[0][1]];
}

/** @param {any} value @returns {Turns} */
function messagesOf(value) {
  if (!Array.isArray(value) || value.length === 0) throw new FileProblem("a question is neither a text nor a list of messages");
  return value.map((message) => {
    const spelled = message?.role ?? message?.from;
    const role = typeof spelled === "string" ? ROLES.get(spelled.toLowerCase()) : undefined;
    if (role === undefined || message.tool_calls || message.function_call) throw new FileProblem("a message is not one of a user, an assistant or the system");
    return [role, contentOf(message.content ?? message.value)];
  });
}

/** @param {any} value @returns {string} */
function contentOf(value) {
  if (typeof value === "string") return value;
  const isText = (/** @type {any} */ part) => ["text", "input_text", "output_text"].includes(part?.type) && typeof part.text === "string";
  if (Array.isArray(value) && value.every(isText)) return value.map((part) => part.text).join("\n");
  throw new FileProblem("a message is more than text");
}

// Markdown as a person asks for it: headings, lists, emphasis, code, quotes and tables.
// All of it becomes elements and text nodes. HTML, links and images stay the text that they are.
import { h } from "./ui.js";

const DEEPEST = 6;
// An emphasis or a piece of code that is longer stays text; so a long text takes no long search.
const LONGEST_SPAN = 1000;
const ITEM = /^(\s{0,12})([-*+]|\d{1,9}[.)])\s+(.*)$/;
const FENCE = /^ {0,3}(```+|~~~+)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;

/** @param {string} line */
const cellsOf = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());
/** @param {string | undefined} line */
const isTableRule = (line) => line !== undefined && line.includes("-") && cellsOf(line).every((cell) => /^:?-+:?$/.test(cell));
/** @param {string} line */
const beginsBlock = (line) => line.trim() === "" || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || /^ {0,3}>/.test(line);

/** The end of a span. @param {string} text @param {string} mark @param {number} from @returns {number} -1 without one. */
function closeOf(text, mark, from) {
  const until = from + LONGEST_SPAN;
  for (let at = text.indexOf(mark, from); at !== -1 && at < until; at = text.indexOf(mark, at + mark.length)) {
    if (at === from || /\s/.test(text[at - 1])) continue;
    const isPart = mark.length === 1 && (text[at + 1] === mark || text[at - 1] === mark);
    if (!isPart && !(mark[0] === "_" && /\w/.test(text[at + mark.length] ?? ""))) return at;
  }
  return -1;
}

/** @param {string} text @param {number} [depth] @returns {any[]} */
function inline(text, depth = 0) {
  if (depth > DEEPEST) return [text];
  const parts = [];
  const marks = /(`+)|(\*\*|__|~~|\*|_)(?=\S)|\\([!-/:-@[-`{-~])/g;
  let done = 0;
  for (let mark = marks.exec(text); mark !== null; mark = marks.exec(text)) {
    const { 0: all, 1: ticks, 3: escaped, index } = mark;
    const from = index + all.length;
    let part;
    let end = from;
    if (escaped !== undefined) part = escaped;
    else if (ticks !== undefined) {
      const close = text.slice(from, from + LONGEST_SPAN).indexOf(ticks);
      if (close === -1) continue;
      part = h("code", null, text.slice(from, from + close).trim());
      end = from + close + ticks.length;
    } else {
      if (all[0] === "_" && /\w/.test(text[index - 1] ?? "")) continue;
      const close = closeOf(text, all, from);
      if (close === -1) continue;
      const name = all === "~~" ? "s" : all.length === 2 ? "strong" : "em";
      part = h(name, null, inline(text.slice(from, close), depth + 1));
      end = close + all.length;
    }
    parts.push(text.slice(done, index), part);
    done = marks.lastIndex = end;
  }
  return [...parts, text.slice(done)];
}

/** The lines of a list, and the number of lines that it takes. @param {string[]} lines @param {number} start @param {number} depth */
function listOf(lines, start, depth) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[start]));
  const indent = first[1].length;
  const inner = indent + first[2].length + 1;
  const isOrdered = /\d/.test(first[2]);
  /** @type {string[][]} */
  const items = [];
  let at = start;
  for (; at < lines.length; at++) {
    const item = ITEM.exec(lines[at]);
    if (item !== null && item[1].length <= indent + 1) {
      if (item[1].length < indent || /\d/.test(item[2]) !== isOrdered) break;
      items.push([item[3]]);
    } else if (lines[at].trim() === "") {
      // A list goes on after an empty line if an item or a part of one follows.
      const next = lines[at + 1] ?? "";
      if (!ITEM.test(next) && !/^\s{2,}\S/.test(next)) break;
      items[items.length - 1].push("");
    } else if (item !== null || /^\s{2,}/.test(lines[at]) || !beginsBlock(lines[at])) {
      const line = lines[at];
      items[items.length - 1].push(line.slice(Math.min(inner, line.length - line.trimStart().length)));
    } else break;
  }
  const begin = isOrdered ? { start: Number.parseInt(first[2], 10) } : null;
  const part = h(isOrdered ? "ol" : "ul", begin, items.map((item) => h("li", null, blocks(item, depth + 1))));
  return { part, end: at };
}

/** @param {string[]} lines @param {number} start */
function tableOf(lines, start) {
  let end = start + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  const row = (/** @type {string} */ line, /** @type {string} */ name) => h("tr", null, cellsOf(line).map((cell) => h(name, null, inline(cell))));
  const part = h("div", { class: "scroll" }, h("table", null, h("thead", null, row(lines[start], "th")), h("tbody", null, lines.slice(start + 2, end).map((line) => row(line, "td")))));
  return { part, end };
}

/** @param {string[]} lines @param {number} start */
function codeOf(lines, start) {
  const [, fence] = /** @type {RegExpExecArray} */ (FENCE.exec(lines[start]));
  let end = start + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence)) end++;
  return { part: h("pre", null, h("code", null, lines.slice(start + 1, end).join("\n"))), end: end + 1 };
}

/** @param {string[]} lines @param {number} [depth] @returns {any[]} */
function blocks(lines, depth = 0) {
  if (depth > DEEPEST) return [lines.join("\n")];
  const parts = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const heading = HEADING.exec(line);
    let block;
    if (line.trim() === "") block = { part: null, end: at + 1 };
    else if (FENCE.test(line)) block = codeOf(lines, at);
    // The page itself has headings of the first two levels.
    else if (heading !== null) block = { part: h(`h${Math.min(6, heading[1].length + 2)}`, null, inline(heading[2])), end: at + 1 };
    else if (RULE.test(line)) block = { part: h("hr", null), end: at + 1 };
    else if (ITEM.test(line)) block = listOf(lines, at, depth);
    else if (line.includes("|") && isTableRule(lines[at + 1])) block = tableOf(lines, at);
    else {
      const isQuote = /^ {0,3}>/.test(line);
      let end = at + 1;
      while (end < lines.length && (isQuote ? /^ {0,3}>/.test(lines[end]) : !beginsBlock(lines[end]))) end++;
      const own = lines.slice(at, end);
      const part = isQuote
        ? h("blockquote", null, blocks(own.map((each) => each.replace(/^ {0,3}> ?/, "")), depth + 1))
        : h("p", null, inline(own.join("\n")));
      block = { part, end };
    }
    if (block.part !== null) parts.push(block.part);
    at = block.end;
  }
  return parts;
}

/** A text of a user with its Markdown rendered. @param {{ text: string }} props */
export const Markdown = ({ text }) => h("div", { class: "markdown", dir: "auto" }, blocks(text.replaceAll("\r\n", "\n").split("\n")));

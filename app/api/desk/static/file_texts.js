// The texts of a file that this tab has open; they never leave the browser.
import { Problem } from "./api.js";

/**
 * @typedef {object} FileTexts The texts of a pair as people read them.
 * @property {string} question
 * @property {string} first The response that comes first by its code points.
 * @property {string} second The other response.
 * @property {boolean} isReversed Whether `first` is response B of the file.
 * @property {Record<string, unknown>} fields The pair in the form of `POST /judge`, in the order of the file.
 */
/** @typedef {{ name: string, pairs: number, unreadable: number, reason: string }} Opened */
/** @typedef {{ read: number, size: number, rows: number }} Progress */

/** @type {Worker | null} */
let worker = null;
/** @type {{ file: File, fingerprint: string, opened: Opened } | null} */
let open = null;
/** @type {Map<number, { resolve: (result: any) => void, reject: (problem: Problem) => void }>} */
const waiting = new Map();
let calls = 0;

/** @param {string} reason */
const problemOf = (reason) => new Problem(0, "unreadable_file", `${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`);

/** @param {string} call @param {unknown[]} given @param {(progress: Progress) => void} [onProgress] @returns {Promise<any>} */
function ask(call, given, onProgress) {
  const made = worker ?? (worker = new Worker(new URL("./pair_file.js", import.meta.url), { type: "module" }));
  made.onmessage = ({ data }) => {
    if (data.progress !== undefined) return onProgress?.(data.progress);
    const caller = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.problem === undefined) caller?.resolve(data.result);
    else caller?.reject(problemOf(data.problem));
  };
  made.onerror = () => {
    close();
    for (const { reject } of waiting.values()) reject(problemOf("the file cannot be read here"));
    waiting.clear();
  };
  return new Promise((resolve, reject) => {
    const id = ++calls;
    waiting.set(id, { resolve, reject });
    made.postMessage({ call, id, given });
  });
}

/** @returns {Opened | null} The file that is open. */
export const opened = () => open?.opened ?? null;

/** Forgets the file. */
export function close() {
  worker?.terminate();
  worker = null;
  open = null;
}

/**
 * Reads a file of pairs, and finds the digest of each.
 * @param {File} file
 * @param {string} fingerprint Of the judge of the set.
 * @param {(progress: Progress) => void} onProgress
 * @returns {Promise<Opened>}
 * @throws {Problem} The page cannot read the file.
 */
export async function openFile(file, fingerprint, onProgress) {
  close();
  const counts = await ask("index", [file, fingerprint], onProgress);
  open = { file, fingerprint, opened: { name: file.name, ...counts } };
  return open.opened;
}

/**
 * Those of some digests whose texts the file has, in the same order. Another judge has other digests, so the file is read
 * again for it.
 * @param {string[]} digests
 * @param {string} fingerprint
 * @returns {Promise<string[]>}
 */
export async function matching(digests, fingerprint) {
  if (open === null) return [];
  if (open.fingerprint !== fingerprint) await openFile(open.file, fingerprint, () => undefined);
  return ask("matching", [digests]);
}

/**
 * The texts of a pair.
 * @param {string} digest
 * @returns {Promise<FileTexts | null>} Null if no file is open, or the file does not have the pair.
 * @throws {Problem} The file has changed.
 */
export const textOf = async (digest) => (open === null ? null : ask("texts", [digest]));

// Requests to the service, with the key of this browser tab.

const KEY = "scope-desk-key";

/** The service's answer to a request that it refused, or the reason why none came. */
export class Problem extends Error {
  /**
   * @param {number} status Status of the answer; 0 if none came.
   * @param {string} code The problem's `code`.
   * @param {string} detail A sentence for people.
   */
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
    this.detail = detail;
  }
}

/** @returns {string | null} The key of this tab. */
export const savedKey = () => sessionStorage.getItem(KEY);

/** Keeps a key until the tab is closed. @param {string | null} key The key; null forgets it. */
export function saveKey(key) {
  if (key === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, key);
}

const PERSON = "scope-desk-person";

/** @returns {string | null} The name of the person at this browser, for a service without keys; "" for nobody. */
export const savedPerson = () => localStorage.getItem(PERSON);

/** @param {string} name "" for a person without a name. */
export const savePerson = (name) => localStorage.setItem(PERSON, name);

/**
 * Sends a request; paths are relative to the page, so a proxy's prefix stays.
 * @param {string} method
 * @param {string} path Without a leading slash.
 * @param {unknown} [body] Sent as JSON.
 * @param {{ keepalive?: boolean, signal?: AbortSignal }} [options]
 * @returns {Promise<any>} The JSON of the answer; null if it has none.
 * @throws {Problem} The service refused, or could not be reached.
 */
export async function call(method, path, body, options = {}) {
  /** @type {Record<string, string>} */
  const headers = {};
  const key = savedKey();
  const person = savedPerson();
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  else if (person) headers["X-Scope-Person"] = encodeURIComponent(person);
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const sent = body === undefined ? undefined : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: sent, cache: "no-store", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "The service cannot be reached. Is it still running?");
  }
  dispatchEvent(new Event("reached"));
  if (answer.status === 204) return null;
  const content = await answer.json().catch(() => null);
  if (answer.ok && content !== null) return content;
  const detail = content?.detail ?? `${answer.status < 500 ? "The answer cannot be read" : "The service does not answer"} (status ${answer.status}).`;
  throw new Problem(answer.status, content?.code ?? "unreadable", sentence(detail));
}

/** @param {string} text */
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** @param {string} path */
export const get = (path) => call("GET", path);
/** The list of all sets that the key may use, page by page. */
export async function allSets() {
  /** @type {any[]} */
  const calibrations = [];
  for (let after = ""; after !== null; ) {
    const page = await get(`calibrations?limit=1000&after=${encodeURIComponent(after)}`);
    calibrations.push(...page.calibrations);
    after = page.next_after;
  }
  return { calibrations };
}
/** @param {string} path @param {unknown} body */
export const post = (path, body) => call("POST", path, body);
/** @param {string} name @param {string} [rest] */
export const ofSet = (name, rest = "") => `calibrations/${encodeURIComponent(name)}${rest}`;
/** @param {string} path @returns {string} The whole URL, for commands. */
export const urlOf = (path) => new URL(path, document.baseURI).href;

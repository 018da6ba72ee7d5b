// The texts of pairs that wait for a label, and labels that are not saved yet: in this browser, not in the service.

/** @typedef {import("./pair_rows.js").Label} Label */
/**
 * @typedef {object} KeptPair
 * @property {string} digest By which the service knows the pair.
 * @property {any} fields Its texts, in the form of `POST /judge`.
 * @property {any} score What the judge said of it, in this order of its responses.
 */

/** The service keeps texts only with a draw, and of each pair until its label: these are no draws. */
export const KEPT = "Their texts stay in the browser that has opened the file, until all have a label; the service keeps only their scores. In another browser, open the file again.";

/** @param {string} name */
const keyOf = (name) => `${location.pathname} ${name}`;
/** For a browser that keeps nothing, such as a private window. @type {Map<string, KeptPair[]>} */
const unkept = new Map();

/** @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} act @returns {Promise<any>} */
const inStore = (mode, act) =>
  new Promise((resolve, reject) => {
    const opening = indexedDB.open("scope-desk", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("pairs");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const request = act(opening.result.transaction("pairs", mode).objectStore("pairs"));
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
      request.transaction?.addEventListener("complete", () => opening.result.close());
    };
  });

/** @param {string} name The set. @returns {Promise<KeptPair[]>} */
export const keptPairs = async (name) => unkept.get(name) ?? (await inStore("readonly", (store) => store.get(keyOf(name))).catch(() => undefined)) ?? [];

/** Keeps pairs beside those that are kept, whose labels may be in the order of their responses. @param {string} name @param {KeptPair[]} pairs */
export async function keepPairs(name, pairs) {
  const all = new Map([...pairs, ...(await keptPairs(name))].map((pair) => [pair.digest, pair]));
  const list = [...all.values()];
  await inStore("readwrite", (store) => store.put(list, keyOf(name))).catch(() => void unkept.set(name, list));
}

/** @param {string} name */
export async function forgetPairs(name) {
  unkept.delete(name);
  keepLabels(name, {});
  await inStore("readwrite", (store) => store.delete(keyOf(name))).catch(() => undefined);
}

/** @param {string} name @returns {Record<string, Label>} Digest -> label that the service does not have yet. */
export const unsavedLabels = (name) => JSON.parse(localStorage.getItem(`scope-desk-labels ${keyOf(name)}`) ?? "{}");

/** @param {string} name @returns {string} What this browser's first label of the set was for; "" before it. */
export const keptGoal = (name) => localStorage.getItem(`scope-desk-goal ${keyOf(name)}`) ?? "";

/** What the service says of itself, with the promise that this browser labels a set for as the usual one. @param {string} name @param {any} info */
export const infoFor = (name, info) => (["", "all"].includes(keptGoal(name)) ? info : { ...info, default_alpha: Number(keptGoal(name)), default_guarantee: "pac" });

/** @param {string} name @param {string} goal */
export const keepGoal = (name, goal) => localStorage.setItem(`scope-desk-goal ${keyOf(name)}`, goal);

/** @param {string} name @returns {string} The goal of the labels that the service does not have yet; "" without such labels. */
export const unsavedGoal = (name) => (Object.keys(unsavedLabels(name)).length > 0 ? keptGoal(name) || "all" : "");

/** @param {string} name @param {Record<string, Label>} labels */
export function keepLabels(name, labels) {
  const key = `scope-desk-labels ${keyOf(name)}`;
  if (Object.keys(labels).length === 0) localStorage.removeItem(key);
  else localStorage.setItem(key, JSON.stringify(labels));
}

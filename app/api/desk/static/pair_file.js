// A worker that reads a file of pairs, which never leaves the browser.
import { FileProblem } from "./pair_rows.js";
import { Places } from "./pair_places.js";

const PROGRESS_MS = 100;

/** @type {Places | null} */
let places = null;

/** @type {Record<string, (...given: any[]) => unknown>} */
const CALLS = {
  async index(/** @type {File} */ file, /** @type {string} */ fingerprint) {
    const found = new Places(file, fingerprint);
    let told = 0;
    await found.find((read) => {
      if (performance.now() - told < PROGRESS_MS) return;
      told = performance.now();
      postMessage({ progress: { read, size: file.size, rows: found.rows } });
    });
    places = found;
    return { pairs: found.places.size, unreadable: found.unreadable, reason: found.reason };
  },
  matching: (/** @type {string[]} */ digests) => digests.filter((digest) => places?.places.has(digest)),
  texts: async (/** @type {string} */ digest) => (await places?.texts(digest)) ?? null,
};

onmessage = async ({ data: { call, id, given } }) => {
  try {
    postMessage({ id, result: await CALLS[call](...given) });
  } catch (problem) {
    postMessage({ id, problem: problem instanceof FileProblem ? problem.message : "the file cannot be read" });
  }
};

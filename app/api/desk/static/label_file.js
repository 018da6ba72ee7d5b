// Where the texts of a set's pairs come from: the service, or a file that this tab has open.
import { html, useState } from "./ui.js";
import { get, ofSet } from "./api.js";
import { count, percent, plural } from "./format.js";
import { close, matching, openFile, opened } from "./file_texts.js";

/** The pairs of a set whose texts the open file has. */
export class FileQueue {
  /** @param {string} name The set. */
  constructor(name) {
    this.path = ofSet(name, "/queue/textless");
    /** Digests that wait for an answer, oldest first. @type {string[]} */
    this.digests = [];
    /** Fingerprint of the judge of the set, once a file is open. */
    this.fingerprint = "";
  }

  /** Looks which of the open audits the file has. */
  async look() {
    if (opened() === null) this.digests = [];
    else {
      const { digests, fingerprint } = await get(this.path);
      this.fingerprint = fingerprint;
      this.digests = await matching(digests, fingerprint);
    }
  }

  /** @param {string} digest Of a pair that has its answer. */
  remove(digest) {
    this.digests = this.digests.filter((each) => each !== digest);
  }
}

/** @param {{ progress: import("./file_texts.js").Progress }} props */
const Reading = ({ progress }) =>
  html`<p role="status"><progress value=${progress.read} max=${progress.size}></progress> ${percent(progress.read / progress.size)} of the
    file read, ${plural(progress.rows, "pair")}</p>`;

/** What the open file has. @param {{ file: import("./file_texts.js").Opened, matched: number, of: number, pooled: number | null }} props */
function FileNote({ file, matched, of, pooled }) {
  const rest = file.unreadable === 0 ? "" : ` ${plural(file.unreadable, "row")} of it ${file.unreadable === 1 ? "has" : "have"} no pair: ${file.reason}.`;
  const audits = html`, among them <strong>${count(matched)} of the ${plural(of, "open audit")}</strong> whose texts the service does not keep`;
  return html`<p><strong>${file.name}</strong> has ${plural(file.pairs, "pair")}${(of > 0 || pooled === null) && audits}.
    ${" "}${pooled === null
      ? "The file stays in this browser, and none of it is sent."
      : `It has ${plural(pooled, "pair")} of the pool to label now.`}${rest}</p>`;
}

/**
 * The sources of the texts, and the way to open a file.
 * @param {{ name: string, withoutTexts: number, kept: number, matched: number, pooled: number | null, report: (error: unknown) => void, onFile: () => void }} props
 */
export function Sources({ name, withoutTexts, kept, matched, pooled, report, onFile }) {
  const [progress, setProgress] = useState(/** @type {import("./file_texts.js").Progress | null} */ (null));
  const file = opened();
  const choose = async (/** @type {any} */ event) => {
    const [chosen] = event.target.files;
    event.target.value = "";
    if (chosen === undefined) return;
    setProgress({ read: 0, size: chosen.size, rows: 0 });
    try {
      const { fingerprint } = await get(ofSet(name, "/queue/textless"));
      await openFile(chosen, fingerprint, setProgress);
    } catch (problem) {
      report(problem);
    }
    setProgress(null);
    onFile();
  };
  const forget = () => {
    close();
    onFile();
  };
  if (withoutTexts === 0 && pooled === null && file === null) return html`<p class="hint">The service keeps the texts of these pairs until they have an answer.</p>`;
  return html`<section class="card" aria-labelledby="sources-title">
    <h2 id="sources-title">Where the texts come from</h2>
    ${kept > 0 && html`<p>The service keeps the texts of ${plural(kept, "open audit")}.</p>`}
    ${withoutTexts > 0 && file === null && html`<p>The service does not keep the texts of ${plural(withoutTexts, "open audit")}. Open the file
      of pairs that was judged: this page finds them in it. The file stays in this browser, and nothing of it is sent.</p>`}
    ${file !== null && html`<${FileNote} file=${file} matched=${matched} of=${withoutTexts} pooled=${pooled} />`}
    ${pooled !== null && file === null && html`<p>The service keeps no text of the pool. Open the file of its pairs: this page finds them in it.</p>`}
    ${progress !== null && html`<${Reading} progress=${progress} />`}
    <div class="row"><label>File of pairs (JSON Lines, CSV or TSV)
        <input type="file" accept=".jsonl,.ndjson,.csv,.tsv,.txt" disabled=${progress !== null} onChange=${choose} /></label>
      ${file !== null && html`<button type="button" class="quiet" onClick=${forget}>Forget the file</button>`}</div>
  </section>`;
}

// The file of a pool's pairs that this tab has open.
import { html, useState } from "./ui.js";
import { count, percent, plural } from "./format.js";
import { close, openFile, opened } from "./file_texts.js";

/** @param {{ progress: import("./file_texts.js").Progress }} props */
const Reading = ({ progress }) =>
  html`<p role="status"><progress value=${progress.read} max=${progress.size}></progress> ${percent(progress.read / progress.size)} of the
    file read, ${plural(progress.rows, "pair")}</p>`;

/** @param {{ file: import("./file_texts.js").Opened, here: number }} props */
function FileNote({ file, here }) {
  const rest = file.unreadable === 0 ? "" : ` ${plural(file.unreadable, "row")} of it ${file.unreadable === 1 ? "has" : "have"} no pair: ${file.reason}.`;
  return html`<p><strong>${file.name}</strong> has ${plural(file.pairs, "pair")}, ${count(here)} of them to label now.${rest}</p>`;
}

/**
 * The way to open the file of a pool's pairs.
 * @param {{ fingerprint: string, here: number, report: (error: unknown) => void, onFile: () => void }} props
 */
export function PoolFile({ fingerprint, here, report, onFile }) {
  const [progress, setProgress] = useState(/** @type {import("./file_texts.js").Progress | null} */ (null));
  const file = opened();
  const choose = async (/** @type {any} */ event) => {
    const [chosen] = event.target.files;
    event.target.value = "";
    if (chosen === undefined) return;
    setProgress({ read: 0, size: chosen.size, rows: 0 });
    try {
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
  return html`<section class="card" aria-labelledby="sources-title">
    <h2 id="sources-title">Where the texts come from</h2>
    ${file === null
      ? html`<p>The service keeps no text of the pool. Open the file of its pairs: this page finds them in it.</p>`
      : html`<${FileNote} file=${file} here=${here} />`}
    ${progress !== null && html`<${Reading} progress=${progress} />`}
    <div class="row"><label>File of pairs (JSON Lines, CSV or TSV)
        <input type="file" accept=".jsonl,.ndjson,.csv,.tsv,.txt" disabled=${progress !== null} onChange=${choose} /></label>
      ${file !== null && html`<button type="button" class="quiet" onClick=${forget}>Forget the file</button>`}</div>
  </section>`;
}

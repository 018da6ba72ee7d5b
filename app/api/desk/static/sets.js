// Sets: every calibration set that the key may use.
import { html } from "./ui.js";
import { count, percent } from "./format.js";

/** The feasible thresholds of a guarantee as alphas. @param {any} set @param {string} guarantee */
const alphas = (set, guarantee) =>
  set.thresholds
    .filter((/** @type {any} */ row) => row.guarantee === guarantee && row.feasible)
    .map((/** @type {any} */ row) => row.alpha)
    .join(", ") || "none";

/** What kind of set it is, if that matters. @param {{ set: any, info: any }} props */
export function SetNote({ set, info }) {
  if (set.fingerprint !== info.fingerprint)
    return html`<p class="warn">This set was made with another judge (${set.judge}), so the present judge refuses it.
      Calibrate again under another name.</p>`;
  if (info.model === "demo" && set.name === "default")
    return html`<p class="note">This set is a toy: it came with the demo judge, whose pairs are small puzzles with known
      answers. Play with it, and calibrate your own judge on your own labels.</p>`;
  return null;
}

/** @param {{ sets: any[], info: any }} props */
export function Sets({ sets, info }) {
  return html`<section class="card" aria-labelledby="sets-title">
    <h1 id="sets-title">Calibration sets</h1>
    <p class="hint">A set has labeled pairs of one judge, and the thresholds that follow from them.</p>
    <table class="cards">
      <thead><tr>
        <th scope="col">Set</th><th scope="col">Version</th><th scope="col">Pairs</th><th scope="col">Judge is right</th>
        <th scope="col">Alphas with verdicts, marginal</th><th scope="col">pac</th>
      </tr></thead>
      <tbody>
        ${sets.map(
          (set) => html`<tr>
            <th scope="row"><a href=${`#sets/${set.name}`}>${set.name}</a>
              ${set.fingerprint !== info.fingerprint && html` <span class="tag warn">another judge</span>`}
              ${info.model === "demo" && set.name === "default" && html` <span class="tag">toy</span>`}
            </th>
            <td data-label="Version">${set.version}</td>
            <td data-label="Pairs">${count(set.n)}${set.unlabelled > 0 && html` <small>${count(set.unlabelled)} without a label</small>`}</td>
            <td data-label="Judge is right">${percent(set.accuracy, 1)}</td>
            <td data-label="Alphas, marginal">${alphas(set, "marginal")}</td>
            <td data-label="Alphas, pac">${alphas(set, "pac")}</td>
          </tr>`,
        )}
      </tbody>
    </table>
  </section>`;
}


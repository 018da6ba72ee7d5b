// One set: its curve, its promises, its versions, and the changes that people can make.
import { html, useState } from "./ui.js";
import { call, get, ofSet, post } from "./api.js";
import { Action, useLoad, Waiting } from "./parts.js";
import { ACTIONS, between, count, criterion, moment, number, percent, plural } from "./format.js";
import { ChangeDialog } from "./change.js";
import { Curve } from "./plot.js";
import { Recalibrate } from "./recalibrate.js";
import { SetNote } from "./sets.js";
import { Upload } from "./upload.js";
import { Meanings } from "./words.js";

/** @typedef {(error: unknown) => void} Report */

/** @param {any} row */
const keyOf = (row) => `${row.guarantee}:${row.alpha}`;

/** Which thresholds there are; the chosen one is on the curve. @param {any} props */
function Thresholds({ set, chosen, onChoose }) {
  /** @type {Map<string, any>} */
  const help = new Map(set.infeasible.map((/** @type {any} */ each) => [keyOf(each), each]));
  const helps = set.infeasible.length > 0 || set.unlabelled > 0;
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Thresholds"><table>
    <thead><tr><th scope="col">Promise</th><th scope="col">Get a verdict</th><th scope="col">Wrong of these</th>
      <th scope="col" class=${helps ? "roomy" : ""}>Threshold</th>${helps && html`<th scope="col">Labels that would help</th>`}</tr></thead>
    <tbody>
      ${set.thresholds.map((/** @type {any} */ row) => {
        const advice = help.get(keyOf(row));
        const is = keyOf(row) === chosen;
        return html`<tr class=${is ? "chosen" : ""}>
          <th scope="row"><button type="button" class="link" aria-pressed=${is} onClick=${() => onChoose(keyOf(row))}>${criterion(row)}</button></th>
          <td>${row.feasible ? percent(row.coverage, 1) : html`<span class="none">none</span>`}</td>
          <td>${percent(row.empirical_risk, 1)}</td>
          <td class=${helps ? "roomy" : ""}>${number(row.threshold)}</td>
          ${helps && html`<td>${row.labels_missing ? "the rest of the pool" : !advice ? "" : advice.more_examples === null ? "more will hardly help" : `about ${count(advice.more_examples)} more`}</td>`}
        </tr>`;
      })}
    </tbody>
  </table></div>`;
}

/** The curve with the chosen threshold. @param {{ set: any, row: any }} props */
function RiskCoverage({ set, row }) {
  if (set.curve.length === 0)
    return html`<p class="note">There is no curve until all pairs of the set have labels.</p>`;
  const line = row.feasible
    ? `At ${criterion(row)}, ${percent(row.coverage)} of the labeled pairs get a verdict, and ${percent(row.empirical_risk, 1)} of these are wrong.`
    : `At ${criterion(row)} nothing gets a verdict.`;
  return html`<${Curve}
    points=${set.curve}
    label="share of the pairs that get a verdict"
    accepted=${row.feasible ? row.coverage : null}
    marks=${[
      { axis: "y", at: row.alpha, colour: "alpha", dashed: true },
      ...(row.feasible ? [{ axis: "x", at: row.coverage, colour: "threshold" }] : []),
    ]}
    caption=${`${line} Dashed line: alpha.`}
  />`;
}

/** @param {{ set: any }} props */
const Facts = ({ set }) =>
  html`<dl class="facts">
    <div><dt>judge is right</dt><dd>${percent(set.accuracy, 1)} <small>${between(set.accuracy_interval)} (95%)</small></dd></div>
    <div><dt>labeled pairs</dt><dd>${count(set.labelled)}</dd></div>
    ${set.unlabelled > 0 && html`<div><dt>pairs without a label</dt><dd>${count(set.unlabelled)}</dd></div>`}
    <div><dt>questions</dt><dd>${count(set.questions)}</dd></div>
    <div><dt>orders disagree</dt><dd>${percent(set.position_flips, 1)}</dd></div>
    <div><dt>judge</dt><dd>${set.judge}</dd></div>
  </dl>`;

/** Feasible alphas of each guarantee in words. @param {{ set: any }} props */
const Feasible = ({ set }) =>
  html`<p>Alphas with verdicts: ${set.feasible_alphas.length === 0 ? "not known until all pairs have labels" : set.feasible_alphas
    .map((/** @type {any} */ each) => {
      const rows = each.intervals.map((/** @type {[number, number]} */ [low, high]) => (low === high ? low : high >= 0.999 ? `from ${low}` : `${low} to ${high}`));
      return `${each.guarantee} ${rows.join(", ") || "none"}`;
    })
    .join("; ")}. The promise does not cover choosing one of them after you have seen them.</p>`;

/** What a version did. @param {any} version */
function didOf(version) {
  const parts = [];
  if (version.rolled_back_to !== null) parts.push(`back to version ${version.rolled_back_to}`);
  for (const what of ["added", "updated", "removed", "ties", "failed"])
    if (version[what]) parts.push(`${count(version[what])} ${what}`);
  return parts.join(", ") || "no example changed";
}

/** @param {{ name: string, versions: any[], current: number, report: Report, onChanged: () => void }} props */
function Versions({ name, versions, current, report, onChanged }) {
  const [asked, setAsked] = useState(/** @type {any} */ (null));
  const look = (/** @type {number} */ version) => async () =>
    setAsked({ version, preview: await post(ofSet(name, "/rollback"), { version, dry_run: true }) });
  const change = async () => {
    await post(ofSet(name, "/rollback"), { version: asked.version });
    setAsked(null);
    onChanged();
  };
  return html`<table class="cards">
      <thead><tr><th scope="col">Version</th><th scope="col">When</th><th scope="col">By</th><th scope="col">What changed</th>
        <th scope="col">Pairs</th><th scope="col"><span class="hidden">Roll back</span></th></tr></thead>
      <tbody>
        ${versions.map(
          (version) => html`<tr>
            <th scope="row">${version.version} <small>${ACTIONS[version.action] ?? version.action}</small></th>
            <td data-label="When">${moment(version.at)}</td>
            <td data-label="By">${version.by}</td>
            <td data-label="What changed">${didOf(version)}</td>
            <td data-label="Pairs">${count(version.n)}</td>
            <td>${version.version === current ? html`<span class="tag">in use</span>` : version.action !== "delete" &&
              html`<${Action} run=${look(version.version)} report=${report} kind="quiet accent" aria-label=${`Roll back to version ${version.version}`}>Roll back…<//>`}</td>
          </tr>`,
        )}
      </tbody>
    </table>
    ${asked !== null &&
    html`<${ChangeDialog} title=${`Roll ${name} back to version ${asked.version}?`} preview=${asked.preview} confirm="Roll back"
      run=${change} onClose=${() => setAsked(null)} />`}`;
}

/** @param {{ name: string, report: Report, onDeleted: () => void }} props */
function Deletion({ name, report, onDeleted }) {
  const [preview, setPreview] = useState(/** @type {any} */ (null));
  const look = async () => setPreview(await call("DELETE", ofSet(name, "?dry_run=true")));
  const change = async () => {
    await call("DELETE", ofSet(name));
    setPreview(null);
    onDeleted();
  };
  return html`<${Action} run=${look} report=${report} kind="danger">Delete this set…<//>
    ${preview !== null &&
    html`<${ChangeDialog} title=${`Delete ${name}?`} preview=${preview} confirm="Delete" danger run=${change} onClose=${() => setPreview(null)} />`}`;
}

/** @param {{ name: string, info: any, report: Report, onChanged: () => void }} props */
export function OneSet({ name, info, report, onChanged }) {
  const { data, reload, failed } = useLoad(
    async () => {
      const [set, trail, monitor] = await Promise.all([get(ofSet(name)), get(ofSet(name, "/versions?limit=50")), get(ofSet(name, "/monitor"))]);
      return { set, versions: trail.versions, monitor };
    },
    [name],
    report,
  );
  const [chosen, setChosen] = useState(`${info.default_guarantee}:${info.default_alpha}`);
  if (data === null) return html`<${Waiting} failed=${failed} />`;
  const { set, versions, monitor } = data;
  const row = set.thresholds.find((/** @type {any} */ each) => keyOf(each) === chosen) ?? set.thresholds[0];
  const changed = () => {
    reload();
    onChanged();
  };
  return html`<p class="above"><a href="#sets">All sets</a></p>
    <section class="card" aria-labelledby="set-title">
      <div class="row spread">
        <h1 id="set-title">${set.name} <small>version ${set.version}, ${plural(set.n, "pair")}</small></h1>
        <p class="row"><a class="button" href=${`#label/${name}`}>Label</a><a class="button" href=${`#watch/${name}`}>Watch</a></p>
      </div>
      <${SetNote} set=${set} info=${info} />
      <${RiskCoverage} set=${set} row=${row} />
      <${Facts} set=${set} />
      <h2>Promises</h2>
      <${Thresholds} set=${set} chosen=${keyOf(row)} onChoose=${setChosen} />
      <${Feasible} set=${set} />
    </section>
    <div class="two">
    <section class="card" aria-labelledby="recalibrate-title">
      <h2 id="recalibrate-title">Recalibrate from audits</h2>
      <${Recalibrate} name=${name} monitor=${monitor} report=${report} onChanged=${changed} />
    </section>
    <section class="card" aria-labelledby="add-title">
      <h2 id="add-title">Add labeled pairs</h2>
      <${Upload} name=${name} info=${info} report=${report} onDone=${changed} />
      <p class="hint after">Pairs without labels are added on the page <a href=${`#label/${name}`}>Label</a>.</p>
    </section>
    </div>
    <section class="card" aria-labelledby="versions-title">
      <h2 id="versions-title">Versions</h2>
      <${Versions} name=${name} versions=${versions} current=${set.version} report=${report} onChanged=${changed} />
    </section>
    <section class="card" aria-labelledby="delete-title">
      <h2 id="delete-title">Delete</h2>
      <p class="hint">The versions stay, so a roll back restores the set.</p>
      <${Deletion} name=${name} report=${report} onDeleted=${() => {
        onChanged();
        location.hash = "#sets";
      }} />
    </section>
    <${Meanings} of=${["verdict", "label", "set", "version", "alpha", "marginal", "pac", "threshold", "audit"]} />`;
}

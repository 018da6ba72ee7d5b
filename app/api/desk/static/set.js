// One set: its curve, its promises, its versions, and the changes that people can make.
import { html, useState } from "./ui.js";
import { call, get, ofSet, post } from "./api.js";
import { Action, Promised, useLoad, Waiting } from "./parts.js";
import { adviceOf, bestRow, isToy } from "./advice.js";
import { ACTIONS, between, count, moment, percent, plural, promise } from "./format.js";
import { ChangeDialog } from "./change.js";
import { MorePairs } from "./new_set.js";
import { forgetPairs, infoFor, keepGoal } from "./pair_store.js";
import { Curve } from "./plot.js";
import { Absorption } from "./recalibrate.js";
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
      ${helps && html`<th scope="col">Labels that would help</th>`}</tr></thead>
    <tbody>
      ${set.thresholds.map((/** @type {any} */ row) => {
        const advice = help.get(keyOf(row));
        const is = keyOf(row) === chosen;
        return html`<tr class=${is ? "chosen" : ""}>
          <th scope="row"><button type="button" class="link" aria-pressed=${is} onClick=${() => onChoose(keyOf(row))}>${promise(row)}</button></th>
          <td>${row.feasible ? percent(row.coverage, 1) : html`<span class="none">none</span>`}</td>
          <td>${percent(row.empirical_risk, 1)}</td>
          ${helps && html`<td>${row.labels_missing ? "those that are missing" : !advice ? "" : advice.more_examples === null ? "not known to help" : `at least ${count(advice.more_examples)} more`}</td>`}
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
    ? `At ${promise(row)}, ${percent(row.coverage)} of the labeled pairs get a verdict, and ${percent(row.empirical_risk, 1)} of these are wrong.`
    : `At ${promise(row)} nothing gets a verdict.`;
  return html`${row.cascade && html`<p>${row.cascade.why} The large judge is asked about ${percent(row.cascade.escalated, 1)} of the pairs. The curve is that of the large judge alone.</p>`}<${Curve}
    points=${set.curve}
    label="share of the pairs that get a verdict"
    accepted=${row.feasible ? row.coverage : null}
    marks=${[
      { axis: "y", at: row.alpha, color: "alpha", dashed: true },
      ...(row.feasible ? [{ axis: "x", at: row.coverage, color: "threshold" }] : []),
    ]}
    caption=${`${line} Dashed line: the promise.`}
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

/** What a version did. @param {any} version */
function didOf(version) {
  const parts = [];
  if (version.rolled_back_to !== null) parts.push(`back to version ${version.rolled_back_to}`);
  for (const what of ["added", "updated", "removed", "ties", "failed"])
    if (version[what]) parts.push(`${count(version[what])} ${what}`);
  if (version.unlabelled) parts.push(`${count(version.unlabelled)} to label`);
  return parts.join(", ") || "nothing changed";
}

/** @param {{ name: string, versions: any[], current: number, onChanged: () => void }} props */
function Versions({ name, versions, current, onChanged }) {
  const [asked, setAsked] = useState(/** @type {any} */ (null));
  const look = (/** @type {number} */ version) => async () =>
    setAsked({ version, preview: await post(ofSet(name, "/rollback"), { version, dry_run: true }) });
  const change = async () => {
    await post(ofSet(name, "/rollback"), { version: asked.version });
    setAsked(null);
    onChanged();
  };
  return html`<ol class="timeline">
      ${versions.map((version) => html`<li><span><strong>Version ${version.version}</strong> ${ACTIONS[version.action] ?? version.action}: ${didOf(version)}${" "}
          <small>${plural(version.n, "pair")}, ${moment(version.at)} by ${version.by}</small></span>
        ${version.version === current ? html`<span class="tag good">in use</span>` : version.action !== "delete" &&
          html`<${Action} run=${look(version.version)} kind="quiet accent" aria-label=${`Roll back to version ${version.version}`}>Roll back…<//>`}</li>`)}
    </ol>
    ${asked !== null &&
    html`<${ChangeDialog} title=${`Roll ${name} back to version ${asked.version}?`} preview=${asked.preview} confirm="Roll back"
      run=${change} onClose=${() => setAsked(null)} />`}`;
}

/** @param {{ name: string, onDeleted: () => void }} props */
function Deletion({ name, onDeleted }) {
  const [preview, setPreview] = useState(/** @type {any} */ (null));
  const look = async () => setPreview(await call("DELETE", ofSet(name, "?dry_run=true")));
  const change = async () => {
    await call("DELETE", ofSet(name));
    await forgetPairs(name);
    keepGoal(name, "");
    setPreview(null);
    onDeleted();
  };
  return html`<${Action} run=${look} kind="danger">Delete this set…<//>
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
  const [chosen, setChosen] = useState("");
  if (data === null) return html`<${Waiting} failed=${failed} />`;
  const { set, versions, monitor } = data;
  const row = set.thresholds.find((/** @type {any} */ each) => keyOf(each) === chosen) ?? bestRow(set, infoFor(set.name, info)) ?? set.thresholds[0];
  const changed = () => {
    reload();
    onChanged();
  };
  const { light, headline, more, next } = adviceOf(set, monitor, infoFor(set.name, info));
  return html`<section class=${`card light light-${light}`} aria-labelledby="set-title">
      <div class="row spread">
        <h1 id="set-title">${set.name} <small>version ${set.version}, ${plural(set.n, "pair")}</small> ${isToy(set, info) && html`<span class="tag">toy</span>`}</h1>
        <p class="row"><a class="button" href=${`#label/${name}`}>Label</a><a class="button" href=${`#watch/${name}`}>Watch</a></p>
      </div>
      <p><strong>${headline}</strong> ${more}</p>
      <p>${next.href !== `#sets/${name}` && html`<a class="button main" href=${next.href}>${next.text}</a>`}</p>
    </section>
    <section class="card" aria-labelledby="promises-title">
      <h2 id="promises-title">Promises</h2>
      <${RiskCoverage} set=${set} row=${row} />
      <${Thresholds} set=${set} chosen=${keyOf(row)} onChoose=${setChosen} />
      <p class="hint">Chosen: <${Promised} of=${row} />. Choose yours before you see these numbers: a promise does not cover a choice by them.</p>
      <${Facts} set=${set} />
    </section>
    <div class="two">
    <section class="card" aria-labelledby="add-title">
      <h2 id="add-title">Add pairs</h2>
      <${MorePairs} set=${set} info=${info} onChanged=${changed} />
    </section>
    <section class="card" aria-labelledby="recalibrate-title">
      <h2 id="recalibrate-title">Add labels of today's pairs</h2>
      <p class="hint">${monitor.recovery === null
        ? "Pairs that were labeled to check the judge become part of the set, up to the first one without a label."
        : `After the alarm, the first ${count(monitor.recovery.audits)} pairs since then replace all others.`} You see what changes before anything does.</p>
      <${Absorption} name=${name} isReplaced=${monitor.recovery !== null} onChanged=${changed}>Preview<//>
    </section>
    </div>
    <section class="card" aria-labelledby="versions-title">
      <h2 id="versions-title">Versions</h2>
      <${Versions} name=${name} versions=${versions} current=${set.version} onChanged=${changed} />
    </section>
    <section class="card" aria-labelledby="delete-title">
      <h2 id="delete-title">Delete</h2>
      <p class="hint">The versions stay, so a roll back restores the set.</p>
      <${Deletion} name=${name} onDeleted=${() => {
        onChanged();
        location.hash = "#home";
      }} />
    </section>
    <${Meanings} of=${["verdict", "label", "set", "version", "promise", "on average", "for this set", "pair to label"]} />`;
}

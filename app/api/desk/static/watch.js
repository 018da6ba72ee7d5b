// Watch: whether the verdicts of a set keep their promise, refreshed by itself.
import { html } from "./ui.js";
import { get, ofSet } from "./api.js";
import { isReady } from "./alarms.js";
import { useRefreshed, Waiting, Words } from "./parts.js";
import { ACTIONS, age, between, count, criterion, evidence, moment, percent, plural } from "./format.js";
import { Absorption } from "./recalibrate.js";
import { Meanings } from "./words.js";

const DAY_MS = 86_400_000;
const LISTED = 30;
const LIGHTS = { red: "Alarm", amber: "Attention", green: "No sign of trouble" };

/** Evidence on a logarithmic scale, with the line at which an alarm rings. @param {any} props */
function Evidence({ label, value, line }) {
  // From 0.01 to 10,000, because evidence shrinks as well as it grows.
  const place = (/** @type {number} */ of) => Math.min(100, Math.max(0, (100 * (Math.log10(Math.max(of, 1e-9)) + 2)) / 6));
  return html`<div class="evidence">
    <span class="share-label">${label}</span>
    <svg class=${`bar ${value >= line ? "bar-alarm" : ""}`} viewBox="0 0 100 10" preserveAspectRatio="none" role="img"
      aria-label=${`Evidence ${evidence(value)} of ${line}`}>
      <rect class="bar-rest" width="100" height="10" />
      <rect class="bar-part" width=${place(value)} height="10" />
      <rect class="bar-line" x=${place(line) - 0.3} width="0.6" height="10" />
    </svg>
    <span class="share-figure">${evidence(value)} <small>of ${line}</small></span>
  </div>`;
}

/** The values below bars of evidence. */
const Scale = () =>
  html`<div class="evidence scale" aria-hidden="true"><span></span><p class="row spread hint"><span>0.01</span><span>1</span><span>100</span><span>10,000</span></p><span></span></div>`;

/** The audits of one criterion. @param {{ of: any }} props */
const Criterion = ({ of }) =>
  html`<section class="card">
    <h2>${criterion(of)} ${of.alarm && html`<span class="tag alarm">alarm since ${moment(of.rang_at)}</span>`}
      ${of.certified && html`<span class="tag good">proved</span>`}
      ${!of.certified && of.certified_without_expired && html`<span class="tag">shown, if expired draws are like the others</span>`}</h2>
    <${Evidence} label="evidence against the promise" value=${of.evidence} line=${of.alarm_evidence} />
    <${Scale} />
    <dl class="facts">
      <div><dt>wrong</dt><dd>${between(of.error_interval)}</dd></div>
      <div><dt>promised</dt><dd>at most ${percent(of.alpha, 1)}</dd></div>
      <div><dt>labels that count</dt><dd>${count(of.labelled)} <small>${count(of.errors)} against the verdict, ${count(of.ties)} ties</small></dd></div>
      <div><dt>wait for a label</dt><dd>${count(of.open)}</dd></div>
      <div><dt>expired</dt><dd>${count(of.expired)}</dd></div>
      <div><dt>drawn abstentions</dt><dd>${count(of.abstentions)}</dd></div>
    </dl>
    ${of.keys.length > 1 &&
    html`<h3>By key</h3>
      <div class="scroll" tabindex="0" role="group" aria-label="By key"><table>
        <thead><tr><th scope="col">Key</th><th scope="col">Labels</th><th scope="col">Against the verdict</th><th scope="col">Evidence</th><th scope="col">Open</th></tr></thead>
        <tbody>${of.keys.map(
          (/** @type {any} */ key) => html`<tr><th scope="row">${key.key ?? "unknown"}</th><td>${count(key.audited)}</td><td>${count(key.errors)}</td>
            <td>${evidence(key.evidence)}</td><td>${count(key.open)}</td></tr>`,
        )}</tbody>
      </table></div>`}
  </section>`;

/** Counts open audits by age and key. @param {any[]} audits */
function grouped(audits) {
  /** @type {Map<string, number[]>} */
  const rows = new Map();
  for (const audit of audits) {
    const days = (Date.now() - new Date(audit.drawn_at).getTime()) / DAY_MS;
    const column = days < 1 ? 0 : days < 3 ? 1 : days < 7 ? 2 : 3;
    const row = rows.get(audit.drawn_by ?? "unknown") ?? [0, 0, 0, 0];
    row[column] += 1;
    rows.set(audit.drawn_by ?? "unknown", row);
  }
  return [...rows].sort(([one], [other]) => one.localeCompare(other));
}

/** @param {{ audits: any[], more: boolean }} props */
function OpenAudits({ audits, more }) {
  if (audits.length === 0) return html`<p>No audit waits for a label.</p>`;
  return html`<p>${more ? "The oldest " : ""}${plural(audits.length, "audit")} ${audits.length === 1 ? "waits" : "wait"} for a label; the
      oldest has waited ${age(audits[0].drawn_at)} and expires ${moment(audits[0].expires_at)}.</p>
    <div class="scroll" tabindex="0" role="group" aria-label="Open audits by key and age"><table>
      <thead><tr><th scope="col">Drawn by</th><th scope="col">under 1 day</th><th scope="col">1 to 3</th><th scope="col">3 to 7</th><th scope="col">older</th></tr></thead>
      <tbody>${grouped(audits).map(([key, ages]) => html`<tr><th scope="row">${key}</th>${ages.map((n) => html`<td>${count(n)}</td>`)}</tr>`)}</tbody>
    </table></div>`;
}

const EVENTS = { alarm: "Alarm", alarm_ended: "A new version ended the alarm", resumed: "Resumed", closed: "Audit closed", label_changed: "Label changed" };

/** Alarms, labels and versions in one list, newest first. @param {any[]} entries @param {any[]} versions */
function timeline(entries, versions) {
  const events = entries.map((entry) => ({
    at: entry.at,
    by: entry.by,
    what: EVENTS[/** @type {keyof typeof EVENTS} */ (entry.event)] ?? entry.event,
    more: [
      entry.alpha === null ? "" : criterion(entry),
      entry.event === "alarm" ? `${entry.errors} of ${entry.audited} labels against the verdict` : "",
      entry.reason ?? "",
    ].filter((part) => part !== "").join(", "),
    kind: entry.event === "alarm" ? "alarm" : "other",
  }));
  const changes = versions.map((version) => ({
    at: version.at,
    by: version.by,
    what: `Version ${version.version}`,
    more: `${ACTIONS[version.action] ?? version.action}, ${plural(version.n, "pair")}`,
    kind: "version",
  }));
  return [...events, ...changes].sort((one, other) => other.at.localeCompare(one.at)).slice(0, LISTED);
}

/** @param {{ events: any[] }} props */
const Events = ({ events }) =>
  html`<ol class="timeline">${events.map(
    (event) => html`<li class=${event.kind}><time datetime=${event.at}>${moment(event.at)}</time>
      <span><strong>${event.what}</strong> ${event.more} <small>by ${event.by}</small></span></li>`,
  )}</ol>`;

/** @param {string} name */
async function load(name) {
  const query = `?status=open&limit=1000&calibration=${encodeURIComponent(name)}`;
  const [monitor, open, trail, versions] = await Promise.all([
    get(ofSet(name, "/monitor")),
    get(`audits${query}`),
    get(ofSet(name, `/audit-trail?limit=${LISTED}`)),
    get(ofSet(name, `/versions?limit=${LISTED}`)),
  ]);
  const events = timeline(trail.entries, versions.versions);
  const since = versions.versions[0]?.at ?? "";
  const older = open.audits.filter((/** @type {any} */ audit) => audit.drawn_at < since).length;
  return { monitor, open, older, events, at: new Date().toISOString() };
}

/**
 * What to do after an alarm, on this page; the service's own words have the commands.
 * @param {{ monitor: any, name: string, report: (error: unknown) => void, onChanged: () => void }} props
 */
function WayBack({ monitor, name, report, onChanged }) {
  const { audits, drawn, labelled, note } = monitor.recovery;
  const ready = isReady(monitor);
  return html`<div class="note">
    <p>Do not use these verdicts. Three steps end the alarm:</p>
    <ol class="way">
      <li><a class=${ready ? "button" : "button main"} href=${`#label/${name}`}>Label</a> <span>the first ${plural(audits, "pair")} since the alarm:
        ${" "}${count(Math.min(labelled, audits))} of ${count(audits)} have their label.
        ${" "}<progress value=${Math.min(labelled, audits)} max=${audits} aria-label="Labels of the pairs since the alarm"></progress>
        ${drawn < audits && html` <span>${count(audits - drawn)} of them are not judged yet, so come back for these later.</span>`}</span></li>
      <li><${Absorption} name=${name} body=${{}} report=${report} onChanged=${onChanged}
        kind=${ready ? "main" : ""} disabled=${!ready}>Recalibrate…<//> <span>so that the set has these labels in place of its old ones.
        You see what changes before anything does. <a href=${`#sets/${name}`}>More choices</a></span></li>
      <li><span class="then">Then</span> <span>label some of the pairs that are judged after it: the light turns green as long as they show nothing wrong.</span></li>
    </ol>
    <details><summary>In a terminal, or over HTTP</summary><p><${Words} of=${note} /></p><p><${Words} of=${monitor.note} /></p></details>
  </div>`;
}

/** How somebody gets to know how often verdicts are wrong. @param {{ monitor: any, name: string, waiting: number, older: number }} props */
function ToKnow({ monitor, name, waiting, older }) {
  const labels = monitor.criteria[0]?.audited ?? 0;
  if (labels > 0)
    return html`<p>This comes from ${plural(labels, "label")}; further ones make the range narrower. ${waiting > 0 && html`<a class="button" href=${`#label/${name}`}>Label</a>`}</p>`;
  if (waiting > older)
    return html`<p><a class="button main" href=${`#label/${name}`}>Label</a> some of the ${plural(waiting, "pair")} that ${waiting === 1 ? "waits" : "wait"}, and this
      light says how often the verdicts are wrong.${older > 0 && ` The first ${count(older)} are from before this version, and do not count for it.`}</p>`;
  return monitor.audit_rate > 0 && html`<p>Pairs to label appear here when programs send new ones to the judge.</p>`;
}

/** The light and its sentence. @param {any} props */
function Light({ monitor, at, name, waiting, older, report, onChanged }) {
  const light = /** @type {keyof typeof LIGHTS} */ (monitor.light);
  const parts = monitor.summary.split("; ");
  // How wrong the verdicts are and what was promised; then since when, and the ties.
  const [how, more] = [parts.slice(0, 2), parts.slice(2)];
  return html`<section class=${`card light light-${light}`} aria-label="State" aria-live="polite">
    <p class="row"><span class="lamp" aria-hidden="true"></span><strong>${LIGHTS[light]}</strong>
      <small class="muted">${name} version ${monitor.version}, seen ${moment(at)}</small></p>
    <h1><${Words} of=${how.join("; ")} /></h1>
    ${more.map((/** @type {string} */ part) => html`<p class="also"><${Words} of=${part} /></p>`)}
    ${monitor.recovery === null || monitor.recovery.audits === null
      ? monitor.note !== null && html`<p><${Words} of=${monitor.note} /></p>`
      : html`<${WayBack} monitor=${monitor} name=${name} report=${report} onChanged=${onChanged} />`}
    ${light !== "red" && html`<${ToKnow} monitor=${monitor} name=${name} waiting=${waiting} older=${older} />`}
  </section>`;
}

const DRIFT = { uncertainty: "uncertainty", position_gap: "effect of the order", label_mass: "label mass" };

/** @param {{ name: string, sets: any[], report: (error: unknown) => void, onChanged: () => void }} props */
export function Watch({ name, sets, report, onChanged }) {
  const { data, reload, failed } = useRefreshed(() => load(name), [name], report);
  const changed = () => {
    reload();
    onChanged();
  };
  if (data === null) return html`<${Waiting} failed=${failed} />`;
  const { monitor, open, older, events, at } = data;
  return html`<div class="row spread above">
      <label class="inline">Set
        <select value=${name} onChange=${(/** @type {any} */ e) => (location.hash = `#watch/${e.target.value}`)}>
          ${sets.map((set) => html`<option value=${set.name}>${set.name}</option>`)}
        </select>
      </label>
      <small class="muted">Refreshes by itself${failed ? "; the last refresh failed" : ""}</small>
    </div>
    <${Light} monitor=${monitor} at=${at} name=${name} waiting=${open.audits.length} older=${older} report=${report} onChanged=${changed} />
    ${monitor.criteria.map((/** @type {any} */ of) => html`<${Criterion} of=${of} />`)}
    <section class="card" aria-labelledby="drift-title">
      <h2 id="drift-title">Is the traffic unlike the labeled pairs?</h2>
      <p class="hint">Evidence of a difference, on a logarithmic scale. At the line, an alarm rings.</p>
      ${Object.entries(DRIFT).map(([field, label]) => monitor.drift[field] !== null &&
        html`<${Evidence} label=${label} value=${monitor.drift[field].evidence} line=${monitor.alarm_evidence} />`)}
      <${Scale} />
    </section>
    <section class="card" aria-labelledby="open-title">
      <h2 id="open-title">Open audits</h2>
      <${OpenAudits} audits=${open.audits} more=${open.next_after !== null} />
    </section>
    <section class="card" aria-labelledby="events-title">
      <h2 id="events-title">Events</h2>
      <${Events} events=${events} />
      <p class="hint after">Requests, latencies and load are in Grafana's dashboard (docs/guides/monitoring.md).</p>
    </section>
    <${Meanings} of=${["verdict", "abstention", "label", "set", "version", "alpha", "marginal", "pac", "audit", "expired", "evidence", "traffic", ...Object.values(DRIFT)]} />`;
}

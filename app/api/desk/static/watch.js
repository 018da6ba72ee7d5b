// Watch: whether the verdicts of a set keep their promise, refreshed by itself.
import { html } from "./ui.js";
import { get, ofSet } from "./api.js";
import { adviceOf, isReady } from "./advice.js";
import { infoFor } from "./pair_store.js";
import { Promised, useRefreshed, Waiting, Words } from "./parts.js";
import { ACTIONS, age, between, clock, count, day, evidence, moment, plain, plural, promise } from "./format.js";
import { Absorption } from "./recalibrate.js";
import { Meanings } from "./words.js";

const LISTED = 30;
const LIGHTS = { red: "Stop", amber: "With care", green: "No sign of trouble" };

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

/** The labels of one promise. @param {{ of: any }} props */
const Criterion = ({ of }) =>
  html`<section class="card">
    <h2><${Promised} of=${of} /> ${of.alarm && html`<span class="tag alarm">alarm since ${moment(of.rang_at)}</span>`}
      ${of.certified && html`<span class="tag good">proved</span>`}</h2>
    <dl class="facts">
      <div><dt>wrong verdicts</dt><dd>${between(of.error_interval)}</dd></div>
      <div><dt>tolerated</dt><dd>${plain(of.alpha)}</dd></div>
      <div><dt>labels that count</dt><dd>${count(of.labelled)} <small>${count(of.errors)} against the verdict, ${count(of.ties)} ties${of.waiting > 0 && `; ${count(of.waiting)} more count later`}</small></dd></div>
      <div><dt>verdicts without a label</dt><dd>${count(of.open)}${of.expired > 0 && html` <small>${count(of.expired)} expired</small>`}</dd></div>
    </dl>
    <${Evidence} label="evidence against it" value=${of.evidence} line=${of.alarm_evidence} />
    <${Scale} />
  </section>`;

/** @param {{ audits: any[], more: boolean }} props */
const OpenAudits = ({ audits, more }) =>
  audits.length === 0
    ? html`<p>No pair waits for a label.</p>`
    : html`<p>${more ? "The oldest " : ""}${plural(audits.length, "pair")} ${audits.length === 1 ? "waits" : "wait"} for a label; the
        oldest has waited ${age(audits[0].drawn_at)} and expires ${moment(audits[0].expires_at)}.</p>`;

const EVENTS = { alarm: "Alarm", alarm_ended: "A new version ended the alarm", resumed: "Resumed", closed: "Pair closed", label_changed: "Label changed" };

/** @typedef {{ at: string, by: string, what: string, more: string, kind: string, from: number, to: number }} Happening */

/** Versions, those that follow each other by one person on one day as one. @param {any[]} versions Newest first. @returns {Happening[]} */
function changesOf(versions) {
  /** @type {Happening[]} */
  const found = [];
  for (const { version, at, by, action, n } of versions) {
    const last = found.at(-1);
    const what = ACTIONS[action] ?? action;
    if (last !== undefined && last.by === by && last.kind === what && day(last.at) === day(at)) last.from = version;
    else found.push({ at, by, what: "", more: plural(n, "pair"), kind: what, from: version, to: version });
  }
  return found.map((each) => ({ ...each, what: each.from === each.to ? `Version ${each.to}` : `Versions ${each.from} to ${each.to}`, more: `${each.kind}, ${each.more}`, kind: "version" }));
}

/** Alarms, labels and versions by day, newest first. @param {any[]} entries @param {any[]} versions @returns {[string, Happening[]][]} */
function timeline(entries, versions) {
  const events = entries.map((entry) => ({
    at: entry.at,
    by: entry.by,
    what: EVENTS[/** @type {keyof typeof EVENTS} */ (entry.event)] ?? entry.event,
    more: [
      entry.alpha === null ? "" : promise(entry),
      entry.event === "alarm" ? `${entry.errors} of ${entry.audited} labels against the verdict` : "",
      entry.reason ?? "",
    ].filter((part) => part !== "").join(", "),
    kind: entry.event === "alarm" ? "alarm" : "other",
    from: 0,
    to: 0,
  }));
  /** @type {Map<string, Happening[]>} */
  const days = new Map();
  for (const event of [...events, ...changesOf(versions)].sort((one, other) => other.at.localeCompare(one.at)).slice(0, LISTED))
    days.set(day(event.at), [...(days.get(day(event.at)) ?? []), event]);
  return [...days];
}

/** @param {{ days: [string, Happening[]][] }} props */
const Events = ({ days }) =>
  days.map(([of, events]) => html`<h3>${of}</h3><ol class="timeline">${events.map(
    (event) => html`<li class=${event.kind}><span><time datetime=${event.at}>${clock(event.at)}</time> <strong>${event.what}</strong> ${event.more} <small>by ${event.by}</small></span></li>`,
  )}</ol>`);

/** @param {string} name */
async function load(name) {
  const query = `?status=open&limit=1000&calibration=${encodeURIComponent(name)}`;
  const [set, monitor, open, trail, versions] = await Promise.all([
    get(ofSet(name)),
    get(ofSet(name, "/monitor")),
    get(`audits${query}`),
    get(ofSet(name, `/audit-trail?limit=${LISTED}`)),
    get(ofSet(name, `/versions?limit=${LISTED}`)),
  ]);
  const events = timeline(trail.entries, versions.versions);
  const since = versions.versions[0]?.at ?? "";
  const older = open.audits.filter((/** @type {any} */ audit) => audit.drawn_at < since).length;
  return { set, monitor, open, older, events, at: new Date().toISOString() };
}

/**
 * The way out of an alarm: its goal is fixed by the first alarm.
 * @param {{ monitor: any, name: string, onChanged: () => void }} props
 */
function WayBack({ monitor, name, onChanged }) {
  const { audits, drawn, labelled } = monitor.recovery;
  const ready = isReady(monitor);
  const [done, judged] = [Math.min(labelled, audits), Math.min(drawn, audits)];
  return html`<ol class="way">
    <li><span><progress value=${done} max=${audits} aria-label="Labels since the alarm"></progress> <strong>${count(done)} of ${count(audits)} labeled, ${count(judged)} of ${count(audits)} judged so far.</strong>
      ${" "}These are the first pairs since the alarm, and their number does not change.${judged < audits && done === judged ? " Come back when programs have sent more." : ""}</span>
      ${!ready && done < judged && html`<a class="button main" href=${`#label/${name}`}>Label</a>`}</li>
    <li><span>Their labels then replace all labels of the set. You see what that does before anything changes.</span>
      ${ready && html`<${Absorption} name=${name} isReplaced onChanged=${onChanged} kind="main">End the alarm…<//>`}</li>
  </ol>`;
}

/** The answer, and the next step. @param {any} props */
function Light({ set, monitor, info, at, waiting, older, onChanged }) {
  const { light, headline, more, next } = adviceOf(set, monitor, infoFor(set.name, info));
  const recovers = monitor.recovery !== null && monitor.recovery.audits !== null;
  return html`<section class=${`card light light-${light}`} aria-label="State" aria-live="polite">
    <p class="row"><span class="lamp" aria-hidden="true"></span><strong>${monitor.alarm ? "Alarm" : LIGHTS[light]}</strong>
      <small class="muted">${set.name} version ${monitor.version}, seen ${moment(at)}</small></p>
    <h1>${headline}</h1>
    ${recovers ? html`<${WayBack} monitor=${monitor} name=${set.name} onChanged=${onChanged} />`
      : html`${more !== "" && html`<p>${more}</p>`}
        ${older > 0 && html`<p class="hint">${waiting > older ? "The first" : "All"} ${count(older)} pairs to label are from before this version, and do not count for it.</p>`}
        <p>${!next.href.startsWith("#watch") && html`<a class="button main" href=${next.href}>${next.text}</a>`}</p>`}
    ${monitor.note !== null && html`<details><summary>For your operator</summary><p><${Words} of=${monitor.note} /></p>
      ${monitor.recovery !== null && html`<p><${Words} of=${monitor.recovery.note} /></p>`}</details>`}
  </section>`;
}

const DRIFT = { uncertainty: "uncertainty", position_gap: "effect of the order", label_mass: "answers other than A or B", large_uncertainty: "uncertainty of the large judge" };

/** @param {{ name: string, sets: any[], info: any, report: (error: unknown) => void, onChanged: () => void }} props */
export function Watch({ name, sets, info, report, onChanged }) {
  const { data, reload, failed } = useRefreshed(() => load(name), [name], report);
  const changed = () => {
    reload();
    onChanged();
  };
  if (data === null) return html`<${Waiting} failed=${failed} />`;
  const { set, monitor, open, older, events, at } = data;
  return html`<div class="row spread above">
      <label class="inline">Set
        <select value=${name} onChange=${(/** @type {any} */ e) => (location.hash = `#watch/${e.target.value}`)}>
          ${sets.map((set) => html`<option value=${set.name}>${set.name}</option>`)}
        </select>
      </label>
      <small class="muted">Refreshes by itself${failed ? "; the last refresh failed" : ""}</small>
    </div>
    <${Light} set=${set} monitor=${monitor} info=${info} at=${at} waiting=${open.audits.length} older=${older} onChanged=${changed} />
    ${monitor.criteria.map((/** @type {any} */ of) => html`<${Criterion} of=${of} />`)}
    <section class="card" aria-labelledby="drift-title">
      <h2 id="drift-title">Has the traffic changed?</h2>
      <p class="hint">Evidence that today's pairs are unlike those of the set. At the line, an alarm starts.</p>
      ${Object.entries(DRIFT).map(([field, label]) => monitor.drift[field] !== null &&
        html`<${Evidence} label=${label} value=${monitor.drift[field].evidence} line=${monitor.alarm_evidence} />`)}
      <${Scale} />
    </section>
    <section class="card" aria-labelledby="open-title">
      <h2 id="open-title">Pairs to label</h2>
      <${OpenAudits} audits=${open.audits} more=${open.next_after !== null} />
    </section>
    <section class="card" aria-labelledby="events-title">
      <h2 id="events-title">Events</h2>
      <${Events} days=${events} />
    </section>
    <${Meanings} of=${["verdict", "label", "set", "version", "promise", "on average", "for this set", "pair to label", "expired", "evidence", "traffic", "uncertainty", "effect of the order"]} />`;
}

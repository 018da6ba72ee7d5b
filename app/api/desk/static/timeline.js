// Drawn verdicts and abstentions over time, with the alarms and versions of a set, as bars and lines.
import { html } from "./ui.js";
import { count, moment, plural } from "./format.js";

/** @typedef {{ since: string, until: string, accepted: number, abstentions: number }} Period */
/** @typedef {{ at: string, kind: "alarm" | "version" | "other", what: string }} Event */

const [WIDTH, HEIGHT, GAP] = [960, 120, 2];
// A short history is drawn at the end of so many periods, so that no bar is as wide as the picture.
const FEWEST = 24;

/** @param {string} at */
const seconds = (at) => new Date(at).getTime() / 1000;

/** The bars of one period. @param {{ period: Period, x: number, width: number, most: number }} props */
function Bar({ period, x, width, most }) {
  const [verdicts, abstentions] = [period.accepted, period.abstentions].map((n) => (HEIGHT * n) / most);
  return html`<g>
    <title>${`${moment(period.since)}: ${plural(period.accepted, "verdict")}, ${plural(period.abstentions, "abstention")}`}</title>
    <rect class="period" x=${x} y="0" width=${width} height=${HEIGHT} />
    <rect class="verdicts" x=${x} y=${HEIGHT - verdicts} width=${width} height=${verdicts} />
    <rect class="abstentions" x=${x} y=${HEIGHT - verdicts - abstentions} width=${width} height=${abstentions} />
  </g>`;
}

/** @param {{ periods: Period[], events: Event[] }} props */
export function Periods({ periods, events }) {
  if (periods.length === 0) return html`<p>No judgments have been drawn for audits yet.</p>`;
  const empty = Math.max(0, FEWEST - periods.length);
  const length = seconds(periods[0].until) - seconds(periods[0].since);
  const [begin, end] = [seconds(periods[0].since) - empty * length, seconds(periods[periods.length - 1].until)];
  const place = (/** @type {string} */ at) => (WIDTH * (seconds(at) - begin)) / (end - begin);
  const width = WIDTH / (empty + periods.length);
  const most = Math.max(1, ...periods.map((period) => period.accepted + period.abstentions));
  const sum = (/** @type {(period: Period) => number} */ of) => periods.reduce((all, period) => all + of(period), 0);
  const marks = events.filter((event) => event.kind !== "other" && seconds(event.at) >= begin && seconds(event.at) <= end);
  const alarms = marks.filter((event) => event.kind === "alarm");
  const said = `${plural(sum((p) => p.accepted), "verdict")} and ${plural(sum((p) => p.abstentions), "abstention")} were drawn for audits since ${moment(periods[0].since)}`;
  return html`<figure class="periods">
    <p class="row hint" aria-hidden="true">${["verdicts", "abstentions", "alarm", "version"].map(
      (name) => html`<span class="legend"><span class=${`key key-${name}`}></span>${name}</span>`,
    )}</p>
    <div class="plane"><span class="most" aria-hidden="true">${count(most)}</span>
      <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${said}; ${plural(alarms.length, "alarm")}`}>
        ${periods.map((period, i) => html`<${Bar} period=${period} x=${(empty + i) * width} width=${width - GAP} most=${most} />`)}
        ${marks.map((event) => html`<line class=${event.kind} x1=${place(event.at)} x2=${place(event.at)} y1="0" y2=${HEIGHT}><title>${`${event.what}, ${moment(event.at)}`}</title></line>`)}
      </svg></div>
    <p class="row spread hint axis" aria-hidden="true"><span>${moment(new Date(1000 * begin).toISOString())}</span><span>${moment(periods[periods.length - 1].until)}</span></p>
    <figcaption>${said}.</figcaption>
  </figure>`;
}

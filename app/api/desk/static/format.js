// Numbers and times as people read them.

/** @param {number | null | undefined} share @param {number} [digits] */
export const percent = (share, digits = 0) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}%`;

/** @param {[number, number] | null | undefined} interval */
export const between = (interval) =>
  interval ? `${percent(interval[0])} to ${percent(interval[1])}` : "–";

/** @param {number | null | undefined} value */
export const count = (value) =>
  value === null || value === undefined ? "–" : value.toLocaleString("en");

/** @param {number} value Evidence, which spans many powers of ten. */
export const evidence = (value) =>
  value === 0 ? "none" : value >= 10_000 ? "far beyond the limit" : value >= 100 ? count(Math.round(value)) : value.toPrecision(2);

/** The words of a guarantee. @type {Record<string, string>} */
export const GUARANTEES = { marginal: "on average", pac: "for this set" };

/** A share without needless digits, such as "10%". @param {number} share */
export const plain = (share) => `${+(100 * share).toPrecision(3)}%`;

/**
 * A promise as people say it, such as "10% on average".
 * @param {{ alpha: number | null, guarantee: string | null }} of
 */
export const promise = ({ alpha, guarantee }) => (alpha === null ? "no promise" : `${plain(alpha)} ${GUARANTEES[guarantee ?? ""]}`);

/** A promise in the words of the API. @param {{ alpha: number | null, guarantee: string | null, delta: number | null }} of */
export const inApi = ({ alpha, guarantee, delta }) =>
  alpha === null ? "" : `alpha ${alpha}, ${guarantee}${delta === null || delta === undefined ? "" : `, delta ${delta}`}`;

/** Two uncertainties as percentages of the most, a coin toss, with as many digits as show that they differ. @param {number} one @param {number} other */
export function unsure(one, other) {
  const written = (/** @type {number} */ digits) => [one, other].map((nats) => percent(nats / Math.LN2, digits));
  const digits = [0, 1, 2, 3, 4].find((each) => one === other || new Set([...written(each), "100%"]).size === 3) ?? 6;
  return written(digits);
}

const MOMENT = new Intl.DateTimeFormat("en", {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
  timeZoneName: "short",
});

/** @param {string | null | undefined} at ISO 8601. @returns {string} In this browser's zone. */
export const moment = (at) => (at ? MOMENT.format(new Date(at)) : "–");

const DAY = new Intl.DateTimeFormat("en", { weekday: "long", month: "long", day: "numeric", year: "numeric" });
const CLOCK = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
/** @param {string} at ISO 8601. */
export const day = (at) => DAY.format(new Date(at));
/** @param {string} at ISO 8601. */
export const clock = (at) => CLOCK.format(new Date(at));

/** @param {string} sentence With times such as "2026-11-23 14:05 UTC". */
export const inThisZone = (sentence) =>
  sentence.replace(/(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)(?: UTC|Z)/g, (_, day, time) => moment(`${day}T${time}Z`));

/** @param {string} at ISO 8601. @param {number} [now] */
export function age(at, now = Date.now()) {
  const hours = (now - new Date(at).getTime()) / 3_600_000;
  if (hours < 1) return "less than an hour";
  if (hours < 48) return `${Math.floor(hours)} h`;
  return `${Math.floor(hours / 24)} days`;
}

/** What made a version. @type {Record<string, string>} */
export const ACTIONS = {
  absorb: "labels of today's pairs",
  calibrate: "labels",
  delete: "deleted",
  import: "pairs or labels",
  pool: "pairs to label",
  rollback: "rolled back",
};

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

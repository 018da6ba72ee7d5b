// May I use this judge for this set, and why? One sentence, a light, and the next step.
import { get, ofSet } from "./api.js";
import { count, moment, percent, plain, plural, promise } from "./format.js";

/** @typedef {"green" | "amber" | "red"} Light */
/**
 * @typedef {object} Advice
 * @property {Light} light
 * @property {string} headline The answer.
 * @property {string} more What it comes from, or what is missing; "" for nothing.
 * @property {{ text: string, href: string }} next The one next step.
 */

/** @param {any} set @param {any} info @returns {boolean} Whether the set came with the demo judge. */
export const isToy = (set, info) => info.model === "demo" && set?.name === "default";

/** @param {any} set @param {number} alpha @param {string} guarantee */
const rowOf = (set, alpha, guarantee) =>
  set.thresholds.find((/** @type {any} */ row) => row.alpha === alpha && row.guarantee === guarantee && row.feasible);

/** The promise to speak of: the service's usual one, or else the smallest with verdicts. @param {any} set @param {any} info */
export function bestRow(set, info) {
  const feasible = set.thresholds.filter((/** @type {any} */ row) => row.feasible);
  const usual = [info.default_guarantee, "marginal", "pac"];
  const place = (/** @type {any} */ row) => [row.alpha === info.default_alpha ? 0 : row.alpha, usual.indexOf(row.guarantee)];
  return feasible.sort((/** @type {any} */ one, /** @type {any} */ other) => place(one)[0] - place(other)[0] || place(one)[1] - place(other)[1])[0];
}

/** @param {any} monitor @returns {boolean} Whether the labels are there that a new version needs. */
export const isReady = ({ recovery }) => recovery !== null && recovery.audits !== null && recovery.labelled >= recovery.audits;

/** The judge is of no use here, whatever is labeled. @param {{ accuracy: number | null, labelled: number }} set */
export const hopeless = (set) =>
  `This judge cannot judge this traffic (right in ${percent(set.accuracy, 1)} of ${count(set.labelled)}). Choose another, or keep people.`;

/** @param {any} set Its details. @returns {boolean} Whether all its pairs have labels and no promise has verdicts, so that more labels hardly help. */
const isHopeless = (set) =>
  isHopelessAfter(set) && set.infeasible.every((/** @type {any} */ each) => each.more_examples === null);

/** @param {any} preview @returns {boolean} Whether a change leaves a set whose labels are complete without any verdicts. */
export const isHopelessAfter = (preview) => preview.unlabelled === 0 && !preview.thresholds.some((/** @type {any} */ row) => row.feasible);

/** @param {any} monitor @returns {any[]} The figures of drift with an alarm. */
const drifted = ({ drift }) => Object.values(drift).filter((stream) => stream?.alarm);

/** @param {any} set @param {any} monitor @returns {Advice} */
function afterAlarm(set, monitor) {
  const watch = `#watch/${set.name}`;
  const [of] = monitor.criteria;
  const changed = drifted(monitor);
  const since = changed.map((stream) => stream.rang_at).filter((at) => at !== null).sort()[0];
  const traffic = changed.length > 0 ? `The traffic has changed${since ? ` (seen ${moment(since)})` : ""}: today's pairs are unlike those of this set` : "";
  if (!of?.alarm)
    return { light: "red", headline: `${traffic}, so you may not rely on it.`,
      more: "Whether its verdicts are still right, only labels of today's pairs can say.",
      next: of?.open > 0 ? { text: "Label today's pairs", href: `#label/${set.name}` } : { text: "Make a set of today's pairs", href: "#home/new" } };
  const [low, high] = of.error_interval;
  const headline = `${traffic === "" ? "You may not" : `${traffic}. You may not use it`}: ${percent(low)} to ${percent(high)} of its verdicts are wrong, and the promise was ${promise(of)}.`;
  const { recovery } = monitor;
  if (recovery === null || recovery.audits === null)
    return { light: "red", headline, more: recovery === null ? "" : "No number of labels brings this promise back.", next: { text: "Make a new set", href: "#home/new" } };
  const done = Math.min(recovery.labelled, recovery.audits);
  const more = `${count(done)} of ${count(recovery.audits)} labeled, ${count(Math.min(recovery.drawn, recovery.audits))} of ${count(recovery.audits)} judged so far.`;
  if (isReady(monitor)) return { light: "red", headline, more, next: { text: "End the alarm", href: watch } };
  return { light: "red", headline, more, next: recovery.drawn > done ? { text: "Label today's pairs", href: `#label/${set.name}` } : { text: "See what is missing", href: watch } };
}

/** @param {any} set @returns {Advice} The set has no verdicts under any promise. */
function withoutVerdicts(set) {
  const name = set.name;
  if (set.unlabelled > 0)
    return { light: "amber", headline: `You may not use it yet: ${plural(set.unlabelled, "pair")} of ${count(set.n)} ${set.unlabelled === 1 ? "has" : "have"} no label.`,
      more: "", next: { text: "Label them", href: `#label/${name}` } };
  if (isHopeless(set))
    return { light: "red", headline: hopeless(set), more: "More labels would hardly help: ask your operator for another judge.", next: { text: "Make a new set", href: "#home/new" } };
  const missing = Math.min(...set.infeasible.map((/** @type {any} */ each) => each.more_examples ?? Infinity));
  return { light: "amber", headline: `You may not use it yet: ${plural(set.labelled, "label")} are not enough for any promise.`,
    more: `The judge is right in ${percent(set.accuracy, 1)} of them. At least ${count(missing)} more labels are needed.`, next: { text: "Add pairs", href: `#sets/${name}` } };
}

/** What is known since the labels of the set. @param {any} monitor @param {any} row @returns {string} */
function checked(monitor, row) {
  const of = monitor.criteria[0];
  if (of?.audited > 0) return `Since then, ${percent(of.error_interval[0])} to ${percent(of.error_interval[1])} of its verdicts are wrong, by ${plural(of.audited, "label")}; the promise is ${promise(of)}.`;
  if (of?.waiting > 0) return `${plural(of.waiting, "label")} ${of.waiting === 1 ? "waits" : "wait"}: each counts once all earlier pairs have theirs, and an hour after its pair was judged.`;
  if (of?.open > 0) return "Nobody has checked its verdicts since.";
  if (monitor.audit_rate > 0) return "Its verdicts have not been checked since: pairs to label appear when programs send some.";
  return `Nothing checks that its verdicts stay ${plain(1 - row.alpha)} right: ask your operator to draw pairs for labels.`;
}

/**
 * @param {any} set As of GET /calibrations, with its details if no promise has verdicts.
 * @param {any} monitor Null if it was not asked.
 * @param {any} info
 * @returns {Advice}
 */
export function adviceOf(set, monitor, info) {
  if (set.fingerprint !== info.fingerprint)
    return { light: "red", headline: `You may not: this set was made with another judge (${set.judge}).`, more: "The present judge refuses it.", next: { text: "Make a new set", href: "#home/new" } };
  if (monitor?.alarm) return afterAlarm(set, monitor);
  const row = bestRow(set, info);
  if (row === undefined) return withoutVerdicts(set);
  const strict = row.guarantee === "pac" ? undefined : rowOf(set, row.alpha, "pac");
  const for_this = row.guarantee === "pac" ? ", a promise that holds for this set" : strict === undefined ? "; a promise that holds for this set gives no verdicts" : `; for a promise that holds for this set, ${percent(strict.coverage)}`;
  const labels = set.unlabelled === 0 ? `${isToy(set, info) ? "its" : "your"} ${plural(set.labelled, "label")}` : "your labels so far";
  const usual = row.alpha === info.default_alpha ? "" : ` At ${plain(info.default_alpha)} you may not: no pair gets a verdict.`;
  const headline = `You may use it at ${plain(row.alpha)} for ${percent(row.coverage)} of pairs: ${percent(row.empirical_risk, 1)} of its verdicts were wrong on ${labels}${for_this}.${usual}`;
  const open = monitor?.criteria[0]?.open ?? 0;
  const next = isToy(set, info)
    ? { text: "Make your own set", href: "#home/new" }
    : set.unlabelled > 0 || (open > 0 && monitor.light !== "green")
      ? { text: set.unlabelled > 0 ? "Label the rest" : "Label pairs to check it", href: `#label/${set.name}` }
      : { text: "Try a pair", href: `#try/${set.name}` };
  return { light: monitor?.light ?? "amber", headline, more: monitor === null ? "" : checked(monitor, row), next };
}

/** A set with what its advice needs. @param {any} set @returns {Promise<{ set: any, monitor: any }>} */
export async function judgedSet(set) {
  const none = !set.thresholds.some((/** @type {any} */ row) => row.feasible);
  const [monitor, details] = await Promise.all([get(ofSet(set.name, "/monitor")), none ? get(ofSet(set.name)) : set]);
  return { set: details, monitor };
}

// Try: a pair in; the verdict, why, both orders, and the pair on the set's curve out.
import { html, useState } from "./ui.js";
import { bestRow, isToy } from "./advice.js";
import { get, ofSet, post, savedKey, urlOf } from "./api.js";
import { Markdown } from "./markdown.js";
import { infoFor } from "./pair_store.js";
import { Action, Copyable, Promised, Refusal, Share, useAction } from "./parts.js";
import { GUARANTEES, percent, unsure } from "./format.js";
import { Curve, shareAt } from "./plot.js";
import { Meanings } from "./words.js";

/** @typedef {{ question: string, response_a: string, response_b: string }} Pair */
/** @typedef {{ calibration: string, share: string, guarantee: string }} Asked `share` is alpha in percent. */

const EXAMPLE = { question: "Is the number 4821 even or odd?", response_a: "odd", response_b: "even" };

/** @param {Asked} asked @returns {Record<string, unknown>} */
function criterionOf(asked) {
  if (asked.calibration === "") return { alpha: null };
  return { alpha: +(Number(asked.share) / 100).toPrecision(12), guarantee: asked.guarantee, calibration: asked.calibration };
}

/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The request as a command. @param {Record<string, unknown>} body */
function asCurl(body) {
  const key = savedKey() === null ? "" : ' \\\n  -H "Authorization: Bearer $SCOPE_API_KEY"';
  return `curl ${quoted(urlOf("judge"))} -H 'Content-Type: application/json'${key} \\\n  -d ${quoted(JSON.stringify(body, null, 2))}`;
}

/** The request in Python. @param {any} body */
function asPython(body) {
  const { question, response_a, response_b, ...rest } = body;
  const literal = (/** @type {unknown} */ value) => (value === null ? "None" : JSON.stringify(value));
  const named = Object.entries(rest).map(([name, value]) => `    ${name}=${literal(value)},\n`);
  return `from scope_judge import ScopeClient

client = ScopeClient(${JSON.stringify(urlOf(".").replace(/\/$/, ""))})${savedKey() === null ? "" : "  # the key: SCOPE_API_KEY"}
judgment = client.judge(
    ${literal(question)},
    ${literal(response_a)},
    ${literal(response_b)},
${named.join("")})
print(judgment.verdict, judgment.reason, judgment.p_bar)`;
}

/** The promise to judge under. @param {any} props */
function PromiseFields({ asked, sets, onChange }) {
  const set = (/** @type {object} */ changes) => onChange({ ...asked, ...changes });
  return html`<fieldset>
    <legend class="hidden">Promise</legend>
    <div class="fields">
      <label>Set
        <select value=${asked.calibration} onChange=${(/** @type {any} */ e) => set({ calibration: e.target.value })}>
          ${sets.map((/** @type {any} */ each) => html`<option value=${each.name}>${each.name}</option>`)}
          <option value="">none: no promise</option>
        </select>
      </label>
      ${asked.calibration !== "" &&
      html`<label>Wrong at most, %
          <input type="number" min="0.1" max="99.9" step="any" value=${asked.share} onInput=${(/** @type {any} */ e) => set({ share: e.target.value })} />
        </label>
        <label>Holds
          <select value=${asked.guarantee} onChange=${(/** @type {any} */ e) => set({ guarantee: e.target.value })}>
            ${Object.entries(GUARANTEES).map(([name, words]) => html`<option value=${name}>${words}</option>`)}
          </select>
        </label>`}
    </div>
  </fieldset>`;
}

/** The pair on the curve of its set. @param {{ judgment: any, detail: any }} props */
function Place({ judgment, detail }) {
  const points = detail.curve;
  const here = shareAt(points, judgment.uncertainty);
  const end = judgment.threshold === null ? null : shareAt(points, judgment.threshold);
  const line = end === null ? "No pair gets a verdict." : "Dashed line: left of it are verdicts.";
  return html`<${Curve}
    points=${points}
    label=${`labeled pairs of ${detail.name}, from sure to unsure`}
    accepted=${end}
    marks=${[{ axis: "x", at: here, color: "mark" }, ...(end === null ? [] : [{ axis: "x", at: end, color: "threshold", dashed: true }])]}
    caption=${`Solid line: this pair; ${percent(here)} of the labeled pairs are as sure as it, or surer. ${line}`}
  />`;
}

/** Why there is a verdict or none, in a sentence. @param {any} judgment */
function reasonOf(judgment) {
  const { reason, threshold, uncertainty } = judgment;
  if (reason === "thought_unfinished") return "The judge's thought did not end, so it has no preference. Asking again gives the same answer.";
  if (reason === "escalation_unavailable") return "The small judge is not sure enough, and the large one cannot be asked now.";
  if (reason === "off_task") return "The judge may not be answering the question: its answer is mostly something other than A or B.";
  if (reason === "no_preference") return "The judge finds both equally good.";
  if (reason === "suspended") return "Labels have shown more errors than promised, so this set gives no verdicts until its alarm ends.";
  if (reason === "infeasible") return "The labels of the set are not enough for this promise, so no pair gets a verdict.";
  if (threshold === null) return "No set was chosen, so nothing is promised.";
  const [is, most] = unsure(uncertainty, threshold);
  return `Its uncertainty is ${is} of the most, ${reason === null ? "not above" : "above"} the ${most} up to which this promise allows verdicts.`;
}

/** Says so if the judge goes by the order. @param {any} judgment */
const orderOf = ({ p_fwd, p_rev }) =>
  p_fwd > 0.5 && p_rev < 0.5 ? " It prefers the response that it reads first, in both orders." : p_fwd < 0.5 && p_rev > 0.5 ? " It prefers the response that it reads second, in both orders." : "";

/** The verdict, first and large. @param {{ judgment: any }} props */
function Verdict({ judgment }) {
  const abstains = judgment.verdict === "abstain";
  return html`<h2 class=${`verdict ${abstains ? "chip-abstain" : `chip-${judgment.verdict}`}`}>${abstains ? "No verdict" : `${judgment.verdict} is better`}</h2>
    <p>${reasonOf(judgment)}${abstains && orderOf(judgment)}</p>
    <p class="muted">${judgment.alpha !== null && html`<${Promised} of=${judgment} />, `}${judgment.calibration && `${judgment.calibration.name} version ${judgment.calibration.version}`}</p>`;
}

/** What both orders say. @param {{ judgment: any }} props */
const Orders = ({ judgment }) =>
  html`<div class="orders" role="group" aria-label="Probability that response A is better">
    <p class="muted">Probability that response A is better</p>
    ${judgment.orders === 2 &&
    html`<${Share} label="A read first" value=${judgment.p_fwd} figure=${percent(judgment.p_fwd, 1)} />
      <${Share} label="B read first" value=${judgment.p_rev} figure=${percent(judgment.p_rev, 1)} />`}
    <${Share} label=${judgment.orders === 2 ? "Average" : "One order"} value=${judgment.p_bar} figure=${percent(judgment.p_bar, 1)} kind="strong" />
  </div>`;

/** What a chat model says of its verdict, if somebody asks. @param {{ body: any, canWrite: boolean }} props */
function Why({ body, canWrite }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  if (!canWrite) return null;
  const ask = async () => setText((await post("judge", { ...body, explain: true })).explanation ?? "The judge wrote nothing.");
  if (text === null) return html`<p><${Action} run=${ask} waits="The judge writes…">Why?<//></p>`;
  return html`<section class="note" aria-label="Explanation"><h3>The judge, asked why</h3><${Markdown} text=${text} />
    <p class="hint">Written afterwards. This is not the reason for the verdict, and no promise covers it.</p></section>`;
}

/** The answer to the last request. @param {{ shown: any, info: any }} props */
const Result = ({ shown: { of, judgment, detail }, info }) =>
  html`<section class="card result" aria-label="Result" aria-live="polite">
    <${Verdict} judgment=${judgment} />
    <${Why} key=${of} body=${JSON.parse(of)} canWrite=${info.kind?.startsWith("chat model") && judgment.preferred !== null} />
    ${judgment.p_bar !== null && html`<${Orders} judgment=${judgment} />`}
    ${judgment.p_bar !== null && detail !== null && detail.curve.length > 0 && html`<${Place} judgment=${judgment} detail=${detail} />`}
    ${judgment.risk_level !== null && html`<p class="hint">The smallest promise that gives this pair a verdict: ${percent(judgment.risk_level, 1)}.</p>`}
    ${judgment.audit !== null && html`<p class="hint">This pair was drawn for a label: it waits on the page Label.</p>`}
  </section>`;

/** @param {{ info: any, sets: any[], name: string }} props */
export function Try({ info, sets, name }) {
  const [pair, setPair] = useState(/** @type {Pair} */ (EXAMPLE));
  const named = sets.find((each) => each.name === name);
  // The promise that Home speaks of.
  const { alpha, guarantee } = (named && bestRow(named, infoFor(name, info))) ?? { alpha: info.default_alpha, guarantee: info.default_guarantee };
  const [asked, setAsked] = useState(/** @type {Asked} */ ({ calibration: name, share: String(+(100 * alpha).toPrecision(6)), guarantee }));
  const [shown, setShown] = useState(/** @type {any} */ (null));
  const body = { ...pair, ...criterionOf(asked) };
  // A verdict stands only beside the pair and the promise that it is for.
  const now = JSON.stringify(body);
  const { busy, error, press } = useAction(async () => {
    const [judgment, detail] = await Promise.all([post("judge", body), asked.calibration === "" ? null : get(ofSet(asked.calibration))]);
    setShown({ of: now, judgment, detail });
  }, [now]);
  const write = (/** @type {string} */ field) => (/** @type {any} */ e) => setPair({ ...pair, [field]: e.target.value });
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    void press();
  };
  const set = sets.find((each) => each.name === asked.calibration);
  return html`<div class="try">
    <div>
    <section class="card form" aria-labelledby="try-title" onKeyDown=${onKey}>
      <h1 id="try-title">Try a pair</h1>
      ${sets.length === 0 && html`<p class="note">There is no set yet, so a verdict promises nothing. <a href="#home">A new set</a> changes that.</p>`}
      ${isToy(set, info) && html`<p class="note">This set is a toy: it came with the demo judge, whose pairs are small puzzles with known answers. <a href="#home/new">Make your own set</a>.</p>`}
      <label>Question
        <textarea rows="2" value=${pair.question} onInput=${write("question")}></textarea>
      </label>
      <div class="pair">
        <label><span class="side side-A">Response A</span>
          <textarea rows="3" value=${pair.response_a} onInput=${write("response_a")}></textarea>
        </label>
        <button type="button" class="quiet swap" aria-label="Swap the responses" title="Swap the responses"
          onClick=${() => setPair({ ...pair, response_a: pair.response_b, response_b: pair.response_a })}>⇄</button>
        <label><span class="side side-B">Response B</span>
          <textarea rows="3" value=${pair.response_b} onInput=${write("response_b")}></textarea>
        </label>
      </div>
      <${PromiseFields} asked=${asked} sets=${sets} onChange=${setAsked} />
      <div class="row"><button type="button" class="main" aria-disabled=${busy ? "true" : undefined} onClick=${press}>${busy ? "Judging…" : "Judge"}</button>
        <span class="hint keyboard"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span></div>
      <${Refusal} of=${error} />
    </section>
    <details class="card code"><summary>The same in your program</summary>
      <${Copyable} texts=${{ curl: asCurl(body), Python: asPython(body) }} />
    </details>
    <${Meanings} of=${["verdict", "set", "promise", "on average", "for this set", "uncertainty", "pair to label"]} />
    </div>
    ${shown === null || shown.of !== now
      ? html`<section class="card empty"><p>The judge reads the pair twice, once in each order of the responses. The
          verdict and its reason appear here.</p></section>`
      : html`<${Result} shown=${shown} info=${info} />`}
  </div>`;
}

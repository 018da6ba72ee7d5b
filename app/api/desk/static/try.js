// Try: a pair in; both orders, the average on the set's curve, and the verdict in words out.
import { html, useState } from "./ui.js";
import { get, ofSet, post, savedKey, urlOf } from "./api.js";
import { Action, Copyable, Share } from "./parts.js";
import { criterion, number, percent } from "./format.js";
import { Curve, shareAt } from "./plot.js";
import { Meanings } from "./words.js";

/** @typedef {{ question: string, response_a: string, response_b: string }} Pair */
/** @typedef {{ calibration: string, alpha: string, guarantee: string }} Asked */

const EXAMPLE = { question: "Is the number 4821 even or odd?", response_a: "odd", response_b: "even" };

/** @param {Asked} asked @returns {Record<string, unknown>} */
function criterionOf(asked) {
  if (asked.calibration === "") return { alpha: null };
  return { alpha: Number(asked.alpha), guarantee: asked.guarantee, calibration: asked.calibration };
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

/** The fields of one criterion. @param {any} props */
function CriterionFields({ asked, sets, onChange, legend }) {
  const set = (/** @type {object} */ changes) => onChange({ ...asked, ...changes });
  return html`<fieldset>
    <legend>${legend}</legend>
    <div class="fields">
      <label>Calibration set
        <select value=${asked.calibration} onChange=${(/** @type {any} */ e) => set({ calibration: e.target.value })}>
          ${sets.map((/** @type {any} */ each) => html`<option value=${each.name}>${each.name}</option>`)}
          <option value="">none: no promise</option>
        </select>
      </label>
      ${asked.calibration !== "" &&
      html`<label title="The largest share of wrong verdicts that you tolerate">Alpha
          <input type="number" min="0.001" max="0.999" step="any" value=${asked.alpha} onInput=${(/** @type {any} */ e) => set({ alpha: e.target.value })} />
        </label>
        <label>Guarantee
          <select value=${asked.guarantee} onChange=${(/** @type {any} */ e) => set({ guarantee: e.target.value })}>
            <option value="marginal">marginal</option><option value="pac">pac</option>
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
  const line = end === null ? "There is no threshold." : "Dashed line: the threshold; left of it are verdicts.";
  return html`<${Curve}
    points=${points}
    label=${`labeled pairs of ${detail.name}, from sure to unsure`}
    accepted=${end}
    marks=${[{ axis: "x", at: here, colour: "mark" }, ...(end === null ? [] : [{ axis: "x", at: end, colour: "threshold", dashed: true }])]}
    caption=${`Solid line: this pair; ${percent(here)} of the labeled pairs are as sure as it, or surer. ${line}`}
  />`;
}

/** The verdict of one criterion. @param {{ judgment: any, detail: any }} props */
function Verdict({ judgment, detail }) {
  const abstains = judgment.verdict === "abstain";
  return html`<div class="verdict">
    <p class="row">
      <span class=${`chip ${abstains ? "chip-abstain" : `chip-${judgment.verdict}`}`}>${abstains ? "Abstain" : judgment.verdict}</span>
      <span class="muted">${criterion(judgment)}${judgment.calibration && `, ${judgment.calibration.name} version ${judgment.calibration.version}`}</span>
    </p>
    <p>${judgment.words}</p>
    ${detail !== null && detail.curve.length > 0 && html`<${Place} judgment=${judgment} detail=${detail} />`}
  </div>`;
}

/** What both orders say. @param {{ judgment: any }} props */
const Orders = ({ judgment }) =>
  html`<div class="orders" role="group" aria-label="Probability that response A is better">
    <p class="row spread muted"><span>Probability that response A is better</span></p>
    ${judgment.orders === 2 &&
    html`<${Share} label="A read first" value=${judgment.p_fwd} figure=${percent(judgment.p_fwd, 1)} />
      <${Share} label="B read first" value=${judgment.p_rev} figure=${percent(judgment.p_rev, 1)} />`}
    <${Share} label=${judgment.orders === 2 ? "Average" : "One order"} value=${judgment.p_bar} figure=${percent(judgment.p_bar, 1)} kind="strong" />
  </div>`;

/** Further numbers. @param {{ judgment: any }} props */
const Numbers = ({ judgment }) =>
  html`<dl class="facts">
    <div><dt>uncertainty</dt><dd>${number(judgment.uncertainty)}</dd></div>
    <div><dt>label mass</dt><dd>${number(judgment.label_mass)}</dd></div>
    <div><dt>smallest alpha that accepts it</dt><dd>${judgment.risk_level === null ? "–" : number(judgment.risk_level)}</dd></div>
    <div><dt>drawn for an audit</dt><dd>${judgment.audit === null ? "no" : "yes"}</dd></div>
    <div><dt>prompt tokens</dt><dd>${judgment.usage.prompt_tokens}</dd></div>
  </dl>`;

/** The answer to the last request. @param {{ shown: any }} props */
function Result({ shown }) {
  const [first] = shown.judged;
  return html`<section class="card result" aria-label="Result" aria-live="polite">
    <${Orders} judgment=${first.judgment} />
    <div class=${shown.judged.length > 1 ? "beside" : ""}>
      ${shown.judged.map((/** @type {any} */ each) => html`<${Verdict} ...${each} />`)}
    </div>
    <${Numbers} judgment=${first.judgment} />
  </section>`;
}

/** @param {string} calibration @param {any} info @returns {Asked} */
const usual = (calibration, info) => ({
  calibration,
  alpha: String(info.default_alpha),
  guarantee: info.default_guarantee,
});

/** @param {{ info: any, sets: any[], report: (error: unknown) => void }} props */
export function Try({ info, sets, report }) {
  const preferred = sets.find((each) => each.name === "default") ?? sets[0];
  const [pair, setPair] = useState(/** @type {Pair} */ (EXAMPLE));
  const [asked, setAsked] = useState([usual(preferred?.name ?? "", info)]);
  const [shown, setShown] = useState(/** @type {any} */ (null));
  const write = (/** @type {string} */ field) => (/** @type {any} */ e) => setPair({ ...pair, [field]: e.target.value });
  const bodies = asked.map((/** @type {Asked} */ each) => ({ ...pair, ...criterionOf(each) }));

  const judge = async () => {
    const judged = await Promise.all(
      bodies.map(async (/** @type {any} */ body) => {
        const judgment = await post("judge", body);
        const detail = body.calibration ? await get(ofSet(body.calibration)) : null;
        return { judgment, detail };
      }),
    );
    setShown({ judged });
  };
  const change = (/** @type {number} */ place) => (/** @type {Asked} */ to) =>
    setAsked(asked.map((/** @type {Asked} */ each, /** @type {number} */ i) => (i === place ? to : each)));
  const second = asked.length > 1;
  return html`<div class="try">
    <div>
    <section class="card form" aria-labelledby="try-title">
      <h1 id="try-title">Try a pair</h1>
      ${sets.length === 0 && html`<p class="note">There is no calibration set yet, so a verdict promises nothing.
        <a href="#sets">Three steps</a> change that.</p>`}
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
      ${asked.map(
        (/** @type {Asked} */ each, /** @type {number} */ i) => html`<${CriterionFields}
          asked=${each} sets=${sets} onChange=${change(i)} legend=${second ? `Criterion ${i + 1}` : "Criterion"}
        />`,
      )}
      <div class="row">
        <${Action} run=${judge} report=${report} kind="main">Judge<//>
        <button type="button" class="quiet accent" onClick=${() => setAsked(second ? [asked[0]] : [asked[0], { ...asked[0], guarantee: "pac" }])}>
          ${second ? "Remove the second criterion" : "Compare with a second criterion"}
        </button>
      </div>
    </section>
    <section class="card code" aria-labelledby="code-title">
      <h2 id="code-title">The same in your program</h2>
      <${Copyable} texts=${{ curl: asCurl(bodies[0]), Python: asPython(bodies[0]) }} />
    </section>
    <${Meanings} of=${["verdict", "abstention", "set", "alpha", "marginal", "pac", "uncertainty", "threshold", "label mass", "audit"]} />
    </div>
    ${shown === null
      ? html`<section class="card empty"><p>The judge reads the pair twice, once in each order of the responses. The
          verdict and its reason appear here.</p></section>`
      : html`<${Result} shown=${shown} />`}
  </div>`;
}

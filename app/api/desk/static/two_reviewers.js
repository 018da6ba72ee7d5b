// Two people for each pair: how far they agree, and their disagreements, which a third person decides.
import { html, useState } from "./ui.js";
import { get, ofSet, post, Problem } from "./api.js";
import { Action, useLoad, Words } from "./parts.js";
import { plural } from "./format.js";

/** @typedef {"left" | "right" | "tie" | "none"} Choice */
/** @typedef {{ id: string, question: string, left: string, right: string, left_label: "A" | "B", choices: Choice[] }} Disagreement */
/** @typedef {{ words: string, agreement: { pairs: number }, open: number, pairs: Disagreement[] }} Disagreements */

/** @type {Record<Choice, string>} */
const SAID = {
  left: "left is better",
  right: "right is better",
  tie: "both are equally good",
  none: "this pair cannot be labelled",
};

/** @returns {1 | 2} Number of people who label each pair, as the address says it. */
export const reviewersOfAddress = () =>
  new URLSearchParams(location.hash.split("?")[1]).get("reviewers") === "2" ? 2 : 1;

/** @param {string} name The set. @param {1 | 2} reviewers @returns {string} The address of Label. */
export const addressOf = (name, reviewers) => `#label/${name}${reviewers === 2 ? "?reviewers=2" : ""}`;

/** @param {string} name @returns {Promise<Disagreements | null>} Null for a key that may only label. */
async function disagreementsOf(name) {
  try {
    return await get(ofSet(name, "/disagreements"));
  } catch (error) {
    if (error instanceof Problem && error.status === 403) return null;
    throw error;
  }
}

/** A disagreement with a button for each decision; nothing says who said what. @param {{ of: Disagreement, onDecided: () => void, report: (error: unknown) => void }} props */
function Decision({ of, onDecided, report }) {
  const [reason, setReason] = useState("");
  const right = of.left_label === "A" ? "B" : "A";
  const decide = (/** @type {object} */ label) => async () => {
    await post("audits/labels", { labels: [{ id: of.id, ...label }] });
    onDecided();
  };
  const text = (/** @type {string} */ label, /** @type {string} */ kind, /** @type {string} */ shown) =>
    html`<section class=${`card ${kind}`} aria-label=${label} tabindex="0"><div class="text" dir="auto">${shown}</div></section>`;
  return html`<div key=${of.id}>
    <p>One person says that ${SAID[of.choices[0]]}, the other that ${SAID[of.choices[1]]}.</p>
    ${text("Question of the disagreement", "question", of.question)}
    <div class="sides">${text("Left response of the disagreement", "response", of.left)}
      ${text("Right response of the disagreement", "response", of.right)}</div>
    <div class="decision">
      <${Action} kind="choice" run=${decide({ label: of.left_label })} report=${report}>Decide: left is better<//>
      <${Action} kind="choice" run=${decide({ label: "tie" })} report=${report}>Decide: equally good<//>
      <${Action} kind="choice" run=${decide({ label: right })} report=${report}>Decide: right is better<//>
    </div>
    <div class="fields"><label>Or why nobody can label it <input maxlength="200" value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} /></label>
      <${Action} run=${decide({ label: "none", reason: reason.trim() })} report=${report} disabled=${reason.trim() === ""}>Close this pair<//></div>
  </div>`;
}

/**
 * The switch for two people, how far they agree, and the oldest disagreement.
 * @param {{ name: string, reviewers: 1 | 2, waiting: number, report: (error: unknown) => void }} props
 */
export function TwoReviewers({ name, reviewers, waiting, report }) {
  const { data, reload } = useLoad(() => disagreementsOf(name), [name, waiting], report);
  const change = (/** @type {any} */ event) => (location.hash = addressOf(name, event.target.checked ? 2 : 1));
  const oldest = data?.pairs[0];
  return html`<label class="check"><input type="checkbox" checked=${reviewers === 2} onChange=${change} />
      Two people label each pair, and do not see each other's label</label>
    ${data !== null && (reviewers === 2 || data.agreement.pairs > 0) && html`<section class="card" aria-label="Agreement">
      <p><${Words} of=${data.words} /></p>
      ${oldest !== undefined && html`<h2>${plural(data.open, "disagreement")} to decide</h2>
        <${Decision} of=${oldest} report=${report} onDecided=${reload} />`}
      ${data.open > 0 && oldest === undefined && html`<p>${plural(data.open, "disagreement")} cannot be shown, because the service has no texts
        of ${data.open === 1 ? "it" : "them"}. Label ${data.open === 1 ? "it" : "them"} with <code>scope-judge audits label FILE</code>.</p>`}
    </section>`}`;
}

// The words of the desk that not everybody knows, explained in a sentence each.
import { html } from "./ui.js";

/** @type {Record<string, string>} */
const MEANINGS = {
  verdict: "The judge's answer that one response is better.",
  label: "A person's answer to which of two responses is better.",
  set: "Labeled pairs, which decide how sure the judge must be to give a verdict.",
  version: "The state of a set after a change. You can restore an old version.",
  promise: "The share of wrong verdicts that you tolerate, such as 10%: one verdict in ten. In the API: alpha.",
  "on average": "The usual promise: the share of wrong verdicts is near the promised one with a good judge and many labels. It is not a bound for one set. In the API: marginal.",
  "for this set": "The stricter promise: the share is at most the promised one for this very set, unless its labels were an unlucky sample (1 in 10). In the API: pac.",
  uncertainty: "How unsure the judge is of a pair: 0% is sure, 100% is a coin toss. Pairs up to a limit, the threshold, get a verdict.",
  "pair to label": "A judged pair, drawn at random, that a person labels to check the judge. In the API: audit.",
  expired: "Drawn for a label, but not labeled in time.",
  evidence: "How strongly labels contradict the promise. 1 means nothing; at the line an alarm starts.",
  traffic: "The pairs that programs send to the service.",
  "effect of the order": "How much the judge's answer changes when the two responses swap places.",
};

/** Says what words of a view mean. @param {{ of: string[] }} props */
export const Meanings = ({ of }) =>
  html`<details class="card"><summary>What do these words mean?</summary>
    <dl class="meanings">${of.map((word) => html`<div><dt>${word}</dt><dd>${MEANINGS[word]}</dd></div>`)}</dl>
  </details>`;

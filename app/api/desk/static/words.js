// The words of the desk that not everybody knows, each in a sentence.
import { html } from "./ui.js";

/** @type {Record<string, string>} */
const MEANINGS = {
  verdict: "The judge's answer that one response is better.",
  abstention: "No verdict, because the judge is not sure enough of the pair.",
  label: "A person's answer to which of two responses is better.",
  set: "Labeled pairs, which decide how sure the judge must be to give a verdict.",
  version: "The state of a set after a change. You can restore an old version.",
  alpha: "The largest promised share of wrong verdicts: alpha 0.1 means at most 10%.",
  marginal: "The usual rule: the share of wrong verdicts is near alpha with a good judge and many labels, without a bound.",
  pac: "A stricter promise: the share is at most alpha for this set, except for the chance delta of an unlucky sample.",
  threshold: "The uncertainty up to which a pair gets a verdict.",
  audit: "A judged pair, drawn at random, that a person labels to check the judge.",
  expired: "Drawn for an audit, but not labeled in time.",
  evidence: "How strongly labels contradict the promise. 1 means nothing; at the line an alarm starts.",
  traffic: "The pairs that programs send to the service.",
  uncertainty: "How unsure the judge is of a pair: 0 is sure, 0.69 is a coin toss.",
  "effect of the order": "How much the judge's answer changes when the two responses swap places.",
  "label mass": "How much of the judge's probability is on the two possible answers.",
};

/** Says what words of a view mean. @param {{ of: string[] }} props */
export const Meanings = ({ of }) =>
  html`<details class="card"><summary>What do these words mean?</summary>
    <dl class="meanings">${of.map((word) => html`<div><dt>${word}</dt><dd>${MEANINGS[word]}</dd></div>`)}</dl>
  </details>`;

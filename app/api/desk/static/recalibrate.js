// Labeled pairs of today's traffic become examples of a set: the question, whose choice always works.
import { html, useState } from "./ui.js";
import { hopeless, isHopelessAfter } from "./advice.js";
import { ofSet, post } from "./api.js";
import { ChangeDialog } from "./change.js";
import { Action } from "./parts.js";
import { count, percent, plural } from "./format.js";

/**
 * A button that shows what new labels do to a set, and asks.
 * @param {any} props `isReplaced` is whether they replace all others, as after an alarm.
 */
export function Absorption({ name, isReplaced, onChanged, children, ...rest }) {
  const [preview, setPreview] = useState(/** @type {any} */ (null));
  const path = ofSet(name, "/absorb");
  const look = async () => setPreview(await post(path, { dry_run: true }));
  const change = async () => {
    // The person has seen the effects, so none of them is a reason to refuse.
    await post(path, { even_if_infeasible: true });
    setPreview(null);
    onChanged();
  };
  const left = preview?.unlabelled_audits ?? 0;
  return html`<${Action} run=${look} inputs=${[name]} ...${rest}>${children}<//>
    ${preview !== null &&
    html`<${ChangeDialog} title=${isReplaced ? `End the alarm of ${name}?` : `Add these labels to ${name}?`} preview=${preview}
      more=${left > 0 ? `${plural(left, "pair")} without a label will be left out.` : null}
      confirm=${isReplaced ? "End the alarm" : "Add them"} run=${change} onClose=${() => setPreview(null)}>
      ${isHopelessAfter(preview)
        ? html`<p class="warn"><strong>${hopeless(preview)}</strong> The alarm ends, and the set gives no verdicts.</p>`
        : html`<p>${isReplaced ? `The ${plural(preview.labelled, "label")} since the alarm replace all others.` : `${plural(preview.added, "label")} more.`}
            ${" "}The judge is right in ${percent(preview.accuracy, 1)} of ${count(preview.labelled)}.</p>`}<//>`}`;
}

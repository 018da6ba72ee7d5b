// Home: for each set, whether its verdicts may be used, why, and the one next step.
import { html, useEffect } from "./ui.js";
import { adviceOf, isToy, judgedSet } from "./advice.js";
import { plural } from "./format.js";
import { NewSet } from "./new_set.js";
import { infoFor, unsavedGoal, unsavedLabels } from "./pair_store.js";
import { useRefreshed } from "./parts.js";

// Each set is a request.
const MOST = 30;
const LIGHTS = { red: "Stop", amber: "With care", green: "Go" };

/** @param {{ of: { set: any, monitor: any }, info: any }} props */
function SetCard({ of: { set, monitor }, info }) {
  const { light, headline, more, next } = adviceOf(set, monitor, infoFor(set.name, info));
  const unsaved = Object.keys(unsavedLabels(set.name)).length;
  return html`<li class=${`card light light-${light}`}>
    <p class="row"><span class="lamp" aria-hidden="true"></span><strong>${LIGHTS[light]}</strong> <a href=${`#sets/${set.name}`}>${set.name}</a>
      ${isToy(set, info) && html` <span class="tag">toy</span>`}</p>
    <h2>${headline}</h2>
    ${more !== "" && html`<p class="hint">${more}</p>`}
    ${isToy(set, info) && html`<p class="hint">This set is a toy: it came with the demo judge, whose pairs are small puzzles with known answers.</p>`}
    ${unsaved > 0 && html`<p class="hint">${plural(unsaved, "label")} ${unsaved === 1 ? "waits" : "wait"} in this browser: <a href=${`#label/${set.name}?for=${unsavedGoal(set.name)}`}>save</a> them.</p>`}
    <p><a class="button main" href=${next.href}>${next.text}</a></p>
  </li>`;
}

/** @param {{ sets: any[], info: any, name: string, onChanged: () => void }} props */
export function Home({ sets, info, name, onChanged }) {
  // The list is shown at once, and without what the monitors say if they do not answer.
  const { data } = useRefreshed(() => Promise.all(sets.slice(0, MOST).map(judgedSet)), [sets], () => undefined);
  const judged = data ?? [];
  useEffect(() => {
    if (name === "new") document.getElementById("new-set")?.scrollIntoView();
  }, [name, data === null]);
  return html`<h1>${sets.length === 0 ? "No set yet" : "May I use this judge?"}</h1>
    ${sets.length === 0
      ? html`<p>Give the judge pairs, label them, and see here for which share of them you may use its verdicts. Or <a href="#try">try a pair</a> first, without a promise.</p>`
      : data === null && html`<p class="waiting" role="status">Loading…</p>`}
    <ul class="sets">${judged.map((of) => html`<${SetCard} key=${of.set.name} of=${of} info=${info} />`)}
      ${data !== null && sets.slice(MOST).map((set) => html`<li><a href=${`#sets/${set.name}`}>${set.name}</a></li>`)}</ul>
    <${NewSet} sets=${sets} info=${info} onChanged=${onChanged} />`;
}

// The line above every view that says which sets have an alarm, and leads to what ends it.
import { html } from "./ui.js";
import { isReady } from "./advice.js";
import { get, ofSet } from "./api.js";
import { count } from "./format.js";
import { useRefreshed } from "./parts.js";

// Each set is a request.
const MOST = 10;

/** @param {string[]} names @returns {Promise<any[]>} The monitors of the sets with an alarm. */
async function alarmed(names) {
  const monitors = await Promise.all(names.slice(0, MOST).map((name) => get(ofSet(name, "/monitor"))));
  return monitors.filter((monitor) => monitor.light === "red");
}

/** @param {{ names: string[] }} props Names of the sets. */
export function Alarms({ names }) {
  // A view says why a request fails; this line is only a hint.
  const { data } = useRefreshed(() => alarmed(names), [names.join()], () => undefined);
  return (data ?? []).map(
    (monitor) => html`<p class="alarm-line" key=${monitor.name} role="status"><span class="lamp" aria-hidden="true"></span>
      <span><strong>Alarm:</strong> ${isReady(monitor)
        ? html`the new labels of <strong>${monitor.name}</strong> are complete.`
        : monitor.recovery === null
          ? html`the traffic of <strong>${monitor.name}</strong> has changed.`
          : html`do not use the verdicts of <strong>${monitor.name}</strong>: ${count(Math.min(monitor.recovery.labelled, monitor.recovery.audits))} of ${count(monitor.recovery.audits)} new labels.`}</span>
      <a href=${`#watch/${monitor.name}`}>${isReady(monitor) ? "End the alarm" : "What to do"}</a></p>`,
  );
}

// The shell: tabs, the key, the theme, the one place for errors, and the view of the address.
import { html, render, useCallback, useEffect, useRef, useState } from "./ui.js";
import { Alarms } from "./alarms.js";
import { allSets, get, Problem, savedKey, saveKey } from "./api.js";
import { detailOf, Dialog, Waiting } from "./parts.js";

const TABS = { home: "Home", label: "Label", watch: "Watch", try: "Try" };
const VIEWS = [...Object.keys(TABS), "sets"];
const NEXT_THEME = { "": "dark", dark: "light", light: "" };
const THEME_WORDS = { "": "Theme: system", dark: "Theme: dark", light: "Theme: light" };

/** @returns {{ view: string, name: string }} What the address asks for. */
function routeOf() {
  const [path] = location.hash.slice(1).split("?");
  const [view, ...rest] = path.split("/");
  // Names of sets have no characters that an address would have to escape.
  const name = rest.join("/");
  return VIEWS.includes(view) && (view !== "sets" || name !== "") ? { view, name } : { view: "home", name: "" };
}

/** @param {{ refused: string | null, onKey: () => void, onClose: () => void }} props */
function KeyDialog({ refused, onKey, onClose }) {
  const [key, setKey] = useState("");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (key.trim() === "") return;
    saveKey(key.trim());
    onKey();
  };
  return html`<${Dialog} title="Which key?" onClose=${onClose}>
    <p>This service needs a key. It stays in this tab until you close it, and is sent to this service alone.</p>
    ${refused !== null && html`<p class="problem" role="alert">${refused}</p>`}
    <form onSubmit=${submit}>
      <label>Key <input type="password" autocomplete="off" data-first value=${key} onInput=${(/** @type {any} */ e) => setKey(e.target.value)} /></label>
      <div class="row end"><button class="main">Use this key</button></div>
    </form>
  <//>`;
}

function Theme() {
  const [theme, setTheme] = useState(/** @type {"" | "dark" | "light"} */ (document.documentElement.dataset.theme ?? ""));
  const next = () => {
    const chosen = /** @type {"" | "dark" | "light"} */ (NEXT_THEME[/** @type {"" | "dark" | "light"} */ (theme)]);
    localStorage.setItem("scope-desk-theme", chosen);
    document.documentElement.dataset.theme = chosen;
    setTheme(chosen);
  };
  return html`<button type="button" class="quiet" onClick=${next}>${THEME_WORDS[/** @type {"" | "dark" | "light"} */ (theme)]}</button>`;
}

/** @param {{ view: string, info: any, onlyLabels: boolean, onForget: () => void }} props */
const Header = ({ view, info, onlyLabels, onForget }) =>
  html`<header class="top">
    <span class="brand">scope-judge</span>
    <nav aria-label="Views">${Object.entries(onlyLabels ? { label: TABS.label } : TABS).map(
      ([name, label]) => html`<a href=${`#${name}`} aria-current=${view === name ? "page" : undefined}>${label}</a>`,
    )}</nav>
    <div class="row tools">
      ${info !== null && html`<span class="muted judge" title=${`fingerprint ${info.fingerprint.slice(0, 12)}`}>judge ${info.judge}</span>`}
      ${savedKey() !== null && html`<button type="button" class="quiet" onClick=${onForget}>Forget key</button>`}
      <${Theme} />
    </div>
  </header>`;

/**
 * The component of a view, whose file is loaded when somebody goes there.
 * @param {{ view: string, name: string }} route
 * @param {any[]} sets
 * @returns {Promise<any>}
 */
async function componentOf({ view, name }, sets) {
  if (view === "try") return (await import("./try.js")).Try;
  if (view === "sets") return (await import("./set.js")).OneSet;
  if (view === "home" || (sets.length === 0 && name === "")) return (await import("./home.js")).Home;
  return view === "label" ? (await import("./label.js")).Label : (await import("./watch.js")).Watch;
}

/** @param {{ view: string, name: string }} route @param {any[]} sets @returns {Promise<string>} The set of a view; to label, one with pairs that wait. */
async function nameOf(route, sets) {
  if (route.name !== "" || route.view === "home" || sets.length === 0) return route.name;
  const named = (/** @type {string} */ name) => sets.find((set) => set.name === name);
  const usual = named("default") ?? sets[0];
  if (route.view !== "label" || sets.length === 1) return usual.name;
  // The view itself says why a key gets no audits.
  const { audits } = await get("audits?texts=true&limit=1").catch(() => ({ audits: [] }));
  return (named(audits[0]?.calibration) ?? sets.find((set) => set.unlabelled > 0) ?? usual).name;
}

/** @returns {Promise<{ info: any, sets: any[], onlyLabels: boolean }>} The service and its sets; none for a key that may only label. */
async function serviceOf() {
  const list = allSets().catch((problem) => {
    if (problem instanceof Problem && problem.status === 403) return null;
    throw problem;
  });
  const [info, sets] = await Promise.all([get("info"), list]);
  return { info, sets: sets?.calibrations ?? [], onlyLabels: sets === null };
}

function Desk() {
  // What is shown, all at once: an address leads to nothing new until its view and data are there.
  const [shown, setShown] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [asks, setAsks] = useState(/** @type {{ refused: string | null } | null} */ (null));
  const newest = useRef(0);

  const report = useCallback((/** @type {unknown} */ problem) => {
    if (problem instanceof Problem && problem.status === 401) {
      setAsks({ refused: savedKey() === null ? null : problem.detail });
      saveKey(null);
    } else setError(problem);
  }, []);
  const load = useCallback(async () => {
    const turn = ++newest.current;
    try {
      const asked = routeOf();
      const { info, sets, onlyLabels } = await serviceOf();
      // A key with the role label alone may label, and see nothing else.
      const route = onlyLabels ? { view: "label", name: asked.view === "label" ? asked.name : "" } : asked;
      const component = onlyLabels ? (await import("./label.js")).Label : await componentOf(route, sets);
      const name = onlyLabels ? route.name : await nameOf(route, sets);
      if (turn === newest.current) setShown({ route, info, sets, onlyLabels, component, name });
    } catch (problem) {
      if (turn === newest.current) report(problem);
    }
  }, []);
  const again = useCallback(() => {
    setAsks(null);
    setError(null);
    void load();
  }, []);
  useEffect(() => {
    void load();
    const onRefused = (/** @type {any} */ event) => report(event.detail);
    // What was said of a service that cannot be reached goes once it answers anything.
    const onReached = () => setError((/** @type {any} */ said) => (said?.code === "unreachable" ? null : said));
    addEventListener("hashchange", again);
    addEventListener("reached", onReached);
    addEventListener("refused", onRefused);
    return () => {
      removeEventListener("hashchange", again);
      removeEventListener("reached", onReached);
      removeEventListener("refused", onRefused);
    };
  }, []);
  const forget = () => {
    saveKey(null);
    setShown(null);
    again();
  };
  const { route, info, sets, name, component, onlyLabels } = shown ?? {};
  return html`<${Header} view=${route?.view ?? "home"} info=${info ?? null} onlyLabels=${onlyLabels ?? false} onForget=${forget} />
    <main>
      ${shown !== null && !onlyLabels && route.view !== "home" && html`<${Alarms} names=${sets.map((/** @type {any} */ set) => set.name).filter((/** @type {string} */ each) => route.view !== "watch" || each !== name)} />`}
      ${error !== null && html`<div class="problem row spread" role="alert"><p>${detailOf(error)}</p>
        <button type="button" class="quiet" onClick=${() => setError(null)}>Dismiss</button></div>`}
      ${shown !== null
        ? html`<${component} key=${route.view === "home" ? "home" : `${route.view}/${name}`} info=${info} sets=${sets} name=${name} report=${report} onChanged=${load} />`
        : html`<${Waiting} failed=${error !== null} />
            ${asks === null && error !== null && html`<p class="waiting"><button type="button" onClick=${again}>Try again</button></p>`}`}
    </main>
    ${asks !== null && html`<${KeyDialog} refused=${asks.refused} onKey=${again} onClose=${() => setAsks(null)} />`}`;
}

const place = /** @type {HTMLElement} */ (document.getElementById("desk"));
place.textContent = "";
render(html`<${Desk} />`, place);

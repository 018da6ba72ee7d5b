// What an empty service shows instead of empty tables.
import { html, useState } from "./ui.js";
import { PoolUpload } from "./pool_upload.js";
import { Upload } from "./upload.js";

/**
 * Three steps from nothing to verdicts.
 * @param {{ report: (error: unknown) => void, onChanged: () => void, info: any }} props
 */
export function FirstRun({ report, onChanged, info }) {
  const [name, setName] = useState("default");
  const fine = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(name);
  return html`<section class="card" aria-labelledby="first-run">
    <h1 id="first-run">Three steps to verdicts that keep a promise</h1>
    <ol class="steps">
      <li>
        <h2>Try the judge</h2>
        <p>Judge a pair without a promise, and see how sure the judge is in both orders.</p>
        <p><a class="button" href="#try">Try a pair</a></p>
      </li>
      <li>
        <h2>Give it labeled pairs</h2>
        <p>The judge learns from your labels when to abstain. Draw the pairs at random from what you
          will judge; a few hundred are a good start. Pairs without labels are labeled here, on the page
          Label.</p>
        <label>Name of the new set
          <input value=${name} onInput=${(/** @type {any} */ e) => setName(e.target.value)} spellcheck="false" />
        </label>
        ${fine
          ? html`<${Upload} name=${name} info=${info} report=${report} onDone=${onChanged} />
              <details><summary>The pairs have no labels yet</summary>
                <${PoolUpload} name=${name} info=${info} labelled=${0} report=${report} onDone=${onChanged} /></details>`
          : html`<p class="warn">A name has up to 64 letters, digits, dots, dashes and underscores.</p>`}
      </li>
      <li>
        <h2>Use it</h2>
        <p>Send pairs to <code>POST /judge</code>, or run <code>scope-judge judge pairs.csv</code>.
          Try shows each request as curl and as Python.</p>
      </li>
    </ol>
  </section>`;
}

// Preact with htm: the only file that imports the page's libraries.
import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { h, render } from "./vendor/preact.js";
export { useEffect, useMemo, useRef, useState, useCallback } from "./vendor/hooks.js";

/** Markup as a template. Texts in it become text nodes, never HTML. */
export const html = htm.bind(h);

// The digest by which the service knows a pair: `core.fingerprint.example_digest`, in the browser.
// Own SHA-256, because the browser's (`crypto.subtle`) is there over HTTPS and on this machine only.

/** @typedef {[role: string, content: string][]} Turns */
/** @typedef {{ question: Turns, a: string[], b: string[] }} Comparison The texts of a pair, one response for each turn or one alone. */

const PRIMES = /** @type {number[]} */ ([]);
for (let n = 2; PRIMES.length < 64; n++) if (PRIMES.every((prime) => n % prime !== 0)) PRIMES.push(n);
const fraction = (/** @type {number} */ x) => (x - Math.floor(x)) * 2 ** 32;
const START = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
const ROUNDS = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
const words = new Int32Array(64);
const encoder = new TextEncoder();
let buffer = new Uint8Array(2 ** 16);

/** @param {number} x @param {number} n */
const turned = (x, n) => (x >>> n) | (x << (32 - n));

/** @param {Int32Array} state @param {number} start First byte of a block of the buffer. */
function mix(state, start) {
  for (let i = 0, at = start; i < 16; i++, at += 4)
    words[i] = (buffer[at] << 24) | (buffer[at + 1] << 16) | (buffer[at + 2] << 8) | buffer[at + 3];
  for (let i = 16; i < 64; i++) {
    const [x, y] = [words[i - 15], words[i - 2]];
    const small = turned(x, 7) ^ turned(x, 18) ^ (x >>> 3);
    words[i] = words[i - 16] + small + words[i - 7] + (turned(y, 17) ^ turned(y, 19) ^ (y >>> 10));
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const one = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[i] + words[i]) | 0;
    const two = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + one) | 0;
    d = c;
    c = b;
    b = a;
    a = (one + two) | 0;
  }
  for (const [i, value] of [a, b, c, d, e, f, g, h].entries()) state[i] += value;
}

/** @param {string} text In ASCII. @returns {string} 64 hexadecimal digits. */
export function sha256(text) {
  const padded = (((text.length + 8) >> 6) + 1) << 6;
  if (buffer.length < padded) buffer = new Uint8Array(2 * padded);
  encoder.encodeInto(text, buffer);
  buffer.fill(0, text.length, padded);
  buffer[text.length] = 0x80;
  const bits = new DataView(buffer.buffer, padded - 8);
  bits.setUint32(0, Math.floor(text.length / 2 ** 29));
  bits.setUint32(4, text.length << 3);
  const state = START.slice();
  for (let start = 0; start < padded; start += 64) mix(state, start);
  return Array.from(state, (word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

// JavaScript compares halves of surrogate pairs, which lie below U+E000; Python compares code points.
const place = (/** @type {number} */ unit) => (unit >= 0xe000 ? unit - 0x800 : unit >= 0xd800 ? unit + 0x2000 : unit);

/** @param {string} one @param {string} other @returns {number} Negative if `one` comes first by its code points. */
function compared(one, other) {
  const end = Math.min(one.length, other.length);
  for (let i = 0; i < end; i++) {
    const [x, y] = [one.charCodeAt(i), other.charCodeAt(i)];
    if (x !== y) return place(x) - place(y);
  }
  return one.length - other.length;
}

/** @param {string[]} one @param {string[]} other @returns {boolean} Whether `one` comes after `other`. */
export function comesAfter(one, other) {
  const at = one.findIndex((text, i) => text !== other[i]);
  if (at === -1) return false;
  return at >= other.length || compared(one[at], other[at]) > 0;
}

/** @param {unknown} value @returns {string} JSON in ASCII, as Python writes it. */
const ascii = (value) =>
  JSON.stringify(value).replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** @param {string} fingerprint Of the judge. @param {Comparison} pair @returns {string} */
export function digestOf(fingerprint, { question, a, b }) {
  return sha256(ascii([fingerprint, question, comesAfter(a, b) ? [b, a] : [a, b]]));
}

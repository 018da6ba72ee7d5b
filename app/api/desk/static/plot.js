// The risk-coverage curve of a set, drawn by uPlot, which is loaded with the first curve.
import { html, useEffect, useRef } from "./ui.js";
import { percent } from "./format.js";

/** @type {Promise<void> | null} */
let loading = null;

/** @returns {Promise<void>} Ends when uPlot is there. */
function library() {
  loading ??= new Promise((resolve, reject) => {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = "desk/vendor/uplot.css";
    const script = document.createElement("script");
    script.src = "desk/vendor/uplot.js";
    script.onload = () => resolve();
    script.onerror = () => {
      loading = null;
      reject(new Error("the library of the curves cannot be loaded"));
    };
    document.head.append(style, script);
  });
  return loading;
}

/**
 * @typedef {object} Mark A line across the curve.
 * @property {"x" | "y"} axis
 * @property {number} at
 * @property {string} color Name of a color of the style sheet.
 * @property {boolean} [dashed]
 */

/** @param {Element} element @param {string} name */
const color = (element, name) => getComputedStyle(element).getPropertyValue(`--plot-${name}`);

/** @param {any} plot @param {Mark[]} marks @param {number | null} accepted @param {Element} host */
function drawMarks(plot, marks, accepted, host) {
  const { ctx, bbox } = plot;
  ctx.save();
  if (accepted !== null) {
    const end = plot.valToPos(accepted, "x", true);
    ctx.fillStyle = color(host, "accepted");
    ctx.fillRect(bbox.left, bbox.top, Math.max(0, end - bbox.left), bbox.height);
  }
  ctx.lineWidth = 2 * devicePixelRatio;
  for (const mark of marks) {
    const at = plot.valToPos(mark.at, mark.axis, true);
    ctx.strokeStyle = color(host, mark.color);
    ctx.setLineDash(mark.dashed ? [6 * devicePixelRatio, 4 * devicePixelRatio] : []);
    ctx.beginPath();
    if (mark.axis === "x") {
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
    } else {
      ctx.moveTo(bbox.left, at);
      ctx.lineTo(bbox.left + bbox.width, at);
    }
    ctx.stroke();
  }
  ctx.restore();
}

/** @param {any} props @param {HTMLElement} host */
function optionsOf({ top, marks, accepted, label }, host) {
  const text = color(host, "text");
  const grid = { stroke: color(host, "grid"), width: 1 };
  const font = `12px ${getComputedStyle(host).fontFamily}`;
  const axis = { stroke: text, grid, ticks: { show: false }, font, labelFont: font, labelSize: 22 };
  return {
    width: host.clientWidth,
    height: 260,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false, range: [0, 1] }, y: { range: [0, top] } },
    axes: [
      {
        ...axis,
        size: 30,
        label,
        values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((value) => percent(value)),
      },
      {
        ...axis,
        label: "wrong, of these verdicts",
        size: 46,
        values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((value) => percent(value, top < 0.05 ? 1 : 0)),
      },
    ],
    series: [{}, { stroke: color(host, "curve"), width: 2, points: { show: false } }],
    hooks: { drawClear: [(/** @type {any} */ plot) => drawMarks(plot, marks, accepted, host)] },
  };
}

/**
 * The share of the labeled pairs that are as sure as an uncertainty, or surer.
 * @param {{ uncertainty: number, coverage: number }[]} points By rising uncertainty.
 * @param {number} uncertainty
 */
export const shareAt = (points, uncertainty) =>
  points.findLast((point) => point.uncertainty <= uncertainty)?.coverage ?? 0;

/**
 * The error among the pairs that get a verdict, by their share.
 * @param {object} props
 * @param {{ uncertainty: number, coverage: number, empirical_risk: number }[]} props.points
 * @param {Mark[]} props.marks
 * @param {number | null} props.accepted Right end of the area of verdicts; null for none.
 * @param {string} props.label Meaning of the axis from left to right.
 * @param {string} props.caption What the picture shows, in words.
 */
export function Curve({ points, marks, accepted, label, caption }) {
  /** @type {any} */
  const ref = useRef(null);
  useEffect(() => {
    const host = ref.current;
    /** @type {any} */
    let plot = null;
    let gone = false;
    const highest = Math.max(0.02, ...points.map((point) => point.empirical_risk), ...marks.filter((mark) => mark.axis === "y").map((mark) => mark.at));
    const draw = () => {
      if (gone || host.clientWidth === 0) return;
      plot?.destroy();
      const data = [points.map((point) => point.coverage), points.map((point) => point.empirical_risk)];
      plot = new (/** @type {any} */ (window).uPlot)(optionsOf({ top: 1.15 * highest, marks, accepted, label }, host), data, host);
    };
    const sized = new ResizeObserver(draw);
    // The colors of a canvas do not follow the style sheet by themselves.
    const themed = new MutationObserver(draw);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    library().then(() => {
      if (gone) return;
      sized.observe(host);
      themed.observe(document.documentElement, { attributes: true });
      scheme.addEventListener("change", draw);
    }, () => undefined);
    return () => {
      gone = true;
      sized.disconnect();
      themed.disconnect();
      scheme.removeEventListener("change", draw);
      plot?.destroy();
    };
  }, [JSON.stringify([points, marks, accepted])]);
  return html`<figure class="curve">
    <div class="plot" ref=${ref} role="img" aria-label=${caption}></div>
    <figcaption>${caption}</figcaption>
  </figure>`;
}

// What the charts share: axes, lines, labels at their ends, colors.

import { count, number } from "./format.js";

export const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };

const MARGIN = { l: 52, r: 16, t: 10, b: 30 };
// Labels need this much width on a time axis, besides the widest margins, and this much height at the ends of
// lines.
const TICK_PX = 78;
const MARGINS_PX = 118;
const LABEL_PX = 15;
const STEPS_S = [15, 30, 60, 120, 180, 300];

/** A layout: the common part with a chart's own. */
export function layout(colors, own) {
  const axis = { gridcolor: colors("--grid"), linecolor: colors("--line"), zeroline: false, automargin: true, fixedrange: true, ticks: "", tickangle: 0 };
  return {
    margin: { ...MARGIN, ...own.margin }, autosize: true, showlegend: false, hovermode: "closest", dragmode: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", uirevision: "kept",
    font: { family: "system-ui, sans-serif", size: 12, color: colors("--muted") },
    hoverlabel: { bgcolor: colors("--card"), bordercolor: colors("--line"), font: { color: colors("--text") }, align: "left" },
    shapes: own.shapes, annotations: own.annotations,
    xaxis: { ...axis, ...own.xaxis }, yaxis: { ...axis, ...own.yaxis },
  };
}

/** The colors of dashboard.css in the current theme, by the name of a property. */
export function palette(page) {
  const probe = page.querySelector("[data-f=probe]");
  const known = new Map();
  return (name) => {
    if (!known.has(name)) {
      probe.style.color = `var(${name})`;
      known.set(name, getComputedStyle(probe).color);
    }
    return known.get(name);
  };
}

/** A line over time. A line needs two points; a single one is drawn as a marker. */
export function line(ago, values, color, { name, unit, dash = "solid", width = 2, fill }) {
  const isLine = values.filter((value) => value !== null).length > 1;
  return {
    type: "scatter", mode: isLine ? "lines" : "markers", name, x: ago, y: values,
    line: { color, dash, width }, marker: { size: 5, color },
    ...(fill && { fill: "tozeroy", fillcolor: fill }),
    hovertemplate: `${name} %{y:,.2~r} ${unit}<extra></extra>`,
  };
}

/** An axis of the last seconds up to now. */
export function timeAxis(seconds, width) {
  const step = STEPS_S.find((each) => (seconds / each) * TICK_PX <= width - MARGINS_PX) ?? STEPS_S.at(-1);
  const tickvals = Array.from({ length: Math.floor(seconds / step) + 1 }, (_, index) => -index * step);
  const text = (ago) => (step % 60 ? `${ago} s ago` : `${ago / 60} min ago`);
  return { range: [-seconds, 0], tickvals, ticktext: tickvals.map((value) => (value ? text(-value) : "now")) };
}

/** An axis from 0 to a bit above the highest value. */
export const upTo = (highest, title) => ({ title: { text: title }, range: [0, 1.12 * highest], nticks: 5, tickformat: highest >= 5 ? ",d" : "", rangemode: "tozero" });

/** A logarithmic axis around some values, of at least a decade: less would exaggerate small changes. */
export function logAxis(values, title) {
  const high = Math.log10(Math.max(...values)) + 0.15;
  const low = Math.min(Math.log10(Math.min(...values)) - 0.15, high - 1);
  const powers = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, index) => Math.floor(low) + index);
  const tickvals = powers.flatMap((power) => (high - low > 2.5 ? [1] : [1, 2, 5]).map((step) => step * 10 ** power));
  const ticktext = tickvals.map((value) => (value >= 1 ? count(value) : number(value)));
  return { type: "log", title: { text: title }, range: [low, high], tickvals, ticktext };
}

export const level = (y, color) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color, width: 2, dash: "dash" } });

/**
 * Labels to the right of a plot of this height, next to the ends of their lines, none over another.
 * `labels` have a place on the axis, a text and a color; those without a place are left out.
 */
export function endLabels(labels, [low, high], height) {
  const step = LABEL_PX / (height - MARGIN.t - MARGIN.b);
  const placed = labels.filter(({ y }) => Number.isFinite(y)).map((label) => ({ ...label, y: (label.y - low) / (high - low) }));
  placed.sort((one, other) => one.y - other.y);
  // No lower than the axis, below which are the ticks.
  let floor = step / 2;
  for (const label of placed) {
    label.y = Math.max(label.y, floor);
    floor = label.y + step;
  }
  let ceiling = 1;
  for (const label of placed.reverse()) {
    label.y = Math.min(label.y, ceiling);
    ceiling = label.y - step;
  }
  return placed.map(({ y, text, color }) => ({
    xref: "paper", x: 1, xanchor: "left", xshift: 4, yref: "paper", y, yanchor: "middle", text, showarrow: false, font: { color },
  }));
}

// The charts, drawn by Plotly once it has loaded, and their captions.

import { counted, msText, number, percent } from "./format.js";
import { POINTS_S, SERIES_S } from "./history.js";
import { keep } from "./view.js";
import { RELEASES } from "./words.js";

const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };
const LEAST_SPAN_S = 60;

export class Charts {
  #page;

  constructor(page) {
    this.#page = page;
  }

  /** Draw an api's charts at a time (seconds since 1970). */
  draw(api, past, now) {
    const colors = palette();
    keep(this.#page.querySelector("[data-f=sizesLegend]"), Object.values(RELEASES), "li", (item, { label, color }) => {
      item.style.setProperty("--color", `var(${color})`);
      if (item.textContent !== label) item.textContent = label;
    });
    for (const [name, make] of Object.entries(CHARTS)) {
      const { data, layout, text } = make({ api, past, now, colors });
      const caption = this.#page.querySelector(`[data-f=${name}Text]`);
      if (caption.textContent !== text) caption.textContent = text;
      const place = this.#page.querySelector(`[data-chart=${name}]`);
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", text);
      globalThis.Plotly?.react(place, data, merged(base(colors), layout), CONFIG);
    }
  }
}

const CHARTS = { sizes, latency, arrivals, failures, times };

function sizes({ api, past, now, colors }) {
  const data = Object.entries(RELEASES).map(([reason, { label, color, symbol }]) => {
    const batches = past.batches.filter((batch) => batch.reason === reason);
    return {
      type: "scatter", mode: "markers", name: label,
      x: batches.map(({ ended }) => ended - now), y: batches.map(({ rows }) => rows),
      text: batches.map(told), hovertemplate: "%{text}<extra></extra>",
      marker: { color: colors(color), symbol, size: 7, opacity: 0.8, line: { width: 0 } },
    };
  });
  const latest = past.batches.at(-1);
  const text = latest
    ? `Each point is a batch of the last ${POINTS_S} s; of many, some. The latest: ${counted(latest.rows, "row")} of ${counted(latest.requests, "request")}, ${label(latest.reason)}.`
    : `No batch in the last ${POINTS_S} s.`;
  const most = Math.max(4, ...past.batches.map(({ rows }) => rows));
  const layout = { xaxis: ago(POINTS_S), yaxis: { title: { text: "rows" }, range: [0, 1.1 * most], nticks: 6, tickformat: ",d" } };
  return { data, layout, text };
}

function latency({ api, past, now, colors }) {
  const goal = api.goal_ms;
  const line = (name, color, dash, width) => ({
    type: "scatter", mode: mode(past[name]), name, x: past.time.map((time) => time - now), y: past[name],
    line: { color: colors(color), dash, width, shape: "linear" }, marker: { size: 5, color: colors(color) },
    hovertemplate: `${name} %{y:.3~s} ms<extra></extra>`,
  });
  const data = [line("p50", "--p50", "dot", 2), line("p95", "--p95", "dash", 2), line("p99", "--p99", "solid", 2.5)];
  const known = [...past.p50, ...past.p99].filter((value) => value > 0);
  const ends = goal === null ? known : [...known, goal];
  const top = ends.length ? Math.log10(Math.max(...ends)) + 0.2 : 3;
  // At least a decade: a shorter axis would exaggerate small changes.
  const range = [ends.length ? Math.min(Math.log10(Math.min(...ends)) - 0.15, top - 1) : 0, top];
  const recent = api.latency;
  const text = (recent ? `p50 ${msText(recent.p50_ms)}, p95 ${msText(recent.p95_ms)}, p99 ${msText(recent.p99_ms)}` : "Too few requests to say")
    + (goal === null ? "; there is no goal." : `; the goal is ${msText(goal)}.`);
  const layout = {
    xaxis: span(past, now), yaxis: { type: "log", title: { text: "ms" }, range, ...logTicks(range) },
    shapes: goal === null ? [] : [level(goal, colors("--goal"))],
    annotations: [...(goal === null ? [] : [onLevel(Math.log10(goal), "goal", colors("--goal"))]), ...names(past, colors)],
  };
  return { data, layout, text };
}

function arrivals({ api, past, now, colors }) {
  const highest = Math.max(1, ...past.rate);
  const capacity = api.capacity_rows;
  const above = capacity !== null && capacity > 4 * highest;
  const data = [
    { type: "scatter", mode: mode(past.rate), name: "arrivals", x: past.time.map((time) => time - now), y: past.rate, fill: "tozeroy", fillcolor: colors("--rate-fill"), line: { color: colors("--rate"), width: 2.5 }, marker: { size: 5, color: colors("--rate") }, hovertemplate: "arrivals %{y:,.3~r} rows/s<extra></extra>" },
    { type: "scatter", mode: mode(past.capacity), name: "capacity", x: past.time.map((time) => time - now), y: above ? [] : past.capacity, line: { color: colors("--goal"), width: 2, dash: "dash" }, marker: { size: 5, color: colors("--goal") }, hovertemplate: "capacity %{y:,.3~r} rows/s<extra></extra>" },
  ];
  const tops = above ? [highest] : [highest, ...past.capacity.filter((value) => value !== null)];
  const note = above
    ? [{ xref: "paper", yref: "paper", x: 1, y: 1, xanchor: "right", yanchor: "top", text: `capacity ${number(capacity)} rows/s ↑`, showarrow: false, font: { color: colors("--goal") } }]
    : capacity === null ? [] : [onLevel(capacity, "capacity", colors("--goal"))];
  const text = (api.rate_rows === null ? "Too few requests to say how many rows arrive; " : `${number(api.rate_rows)} rows/s arrived; `)
    + (capacity === null ? "too few batches to say what the workers can answer." : `the workers can answer ${api.capacity_is_least ? "at least " : ""}${number(capacity)} rows/s${above ? ", far above the chart" : ""}.`);
  return { data, layout: { xaxis: span(past, now), yaxis: { title: { text: "rows/s" }, range: [0, 1.15 * Math.max(...tops)], nticks: 6 }, annotations: note }, text };
}

function failures({ api, past, now, colors }) {
  const line = (name, color) => ({
    type: "scatter", mode: mode(past[name]), name, x: past.time.map((time) => time - now), y: past[name],
    line: { color: colors(color), width: 2.5 }, marker: { size: 5, color: colors(color) }, hovertemplate: `${name} %{y:.3~r} %<extra></extra>`,
  });
  const data = [line("errors", "--bad"), line("refused", "--warn")];
  const highest = Math.max(...past.errors, ...past.refused);
  const ends = data.flatMap(({ name, y, line: { color } }) => (y.at(-1) > 0 ? [endOf(y.at(-1), name, color)] : []));
  const text = api.error_share === null
    ? "No request was answered in the last 30 s."
    : `${percent(api.error_share)} of ${counted(api.answered, "request")} ended in an error, ${percent(api.refused_share)} were refused.`;
  return { data, layout: { xaxis: span(past, now), yaxis: { title: { text: "%" }, range: [0, Math.max(5, 1.15 * highest)], nticks: 6 }, annotations: ends }, text };
}

function times({ api, past, colors }) {
  const { intercept_ms, slope_ms, spread, rows } = api.estimate ?? { intercept_ms: 0, slope_ms: 0, spread: 0, rows: null };
  const most = Math.max(4, rows?.[1] ?? 0, ...past.batches.map(({ cost }) => cost)) * 1.05;
  const at = (n) => intercept_ms + slope_ms * n;
  const marks = (worked, name, symbol, color) => {
    const batches = past.batches.filter((batch) => batch.worked === worked);
    return {
      type: "scatter", mode: "markers", name, x: batches.map(({ cost }) => cost), y: batches.map(({ actual_ms }) => actual_ms),
      text: batches.map(told), hovertemplate: "%{text}<extra></extra>", marker: { color: colors(color), symbol, size: 6, opacity: 0.55 },
    };
  };
  const edge = (factor, fill) => ({
    type: "scatter", mode: "lines", x: [0, most], y: [at(0) * factor, at(most) * factor], line: { width: 0 }, fill, fillcolor: colors("--band"), hoverinfo: "skip",
  });
  const line = { type: "scatter", mode: "lines", name: "estimate", x: [0, most], y: [at(0), at(most)], line: { color: colors("--goal"), width: 2 }, hoverinfo: "skip" };
  const data = [marks(true, "batch", "circle", "--p95"), marks(false, "failed batch", "x", "--bad")];
  if (rows) data.unshift(edge(Math.max(0, 1 - spread)), edge(1 + spread, "tonexty"));
  if (rows) data.push(line);
  const text = rows
    ? `A batch of n rows takes ${msText(intercept_ms)} + ${msText(slope_ms)} × n (±${Math.max(1, Math.round(100 * spread))} %); ${seen(rows)} were seen.`
    : "Too few batches have succeeded to say how long one takes.";
  const highest = Math.max(...past.batches.map(({ actual_ms }) => actual_ms), rows ? at(most) * (1 + spread) : 1);
  return { data, layout: { xaxis: { title: { text: "rows" }, range: [0, most], nticks: 8 }, yaxis: { title: { text: "ms" }, range: [0, 1.08 * highest], nticks: 6 } }, text };
}

// Parts of charts

const label = (reason) => RELEASES[reason]?.label ?? reason;

/** A line needs two points; a single one is drawn as a marker. */
const mode = (values) => (values.filter((value) => value !== null).length > 1 ? "lines" : "markers");

function told(batch) {
  const failed = batch.worked ? "" : "<br>failed";
  return `<b>batch ${batch.number}</b><br>${counted(batch.rows, "row")} of ${counted(batch.requests, "request")}, worker ${batch.worker}`
    + `<br>${label(batch.reason)}, after ${msText(batch.waited_ms)}<br>took ${msText(batch.actual_ms)}, predicted ${msText(batch.predicted_ms)}${failed}`;
}

/** An axis of the last seconds up to now. */
function ago(seconds) {
  const step = seconds > 240 ? 60 : seconds > 120 ? 30 : 15;
  const tickvals = Array.from({ length: Math.floor(seconds / step) + 1 }, (_, index) => -index * step);
  const told = (value) => (value % 60 === 0 && value < -60 ? `${-value / 60} min ago` : `${-value} s ago`);
  return { range: [-seconds, 0.01 * seconds], tickvals, ticktext: tickvals.map((value) => (value ? told(value) : "now")) };
}

/** An axis that grows with the history, up to its limit. */
const span = (past, now) => ago(Math.min(SERIES_S, Math.max(LEAST_SPAN_S, now - past.time[0])));

/** Ticks at 1, 2 and 5 times powers of ten. */
function logTicks([low, high]) {
  const powers = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, index) => Math.floor(low) + index);
  const steps = high - low > 3 ? [1] : [1, 2, 5];
  const tickvals = powers.flatMap((power) => steps.map((step) => step * 10 ** power));
  return { tickvals, ticktext: tickvals.map(number) };
}

const level = (y, color) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color, width: 2, dash: "dash" } });

const endOf = (y, text, color) => ({ xref: "paper", x: 1, xanchor: "right", y, yanchor: "bottom", text, showarrow: false, font: { color } });

const onLevel = (y, text, color) => ({ xref: "paper", x: 0, xanchor: "left", y, yanchor: "bottom", text, showarrow: false, font: { color } });

/** Names at the ends of the lines of percentiles. */
function names(past, colors) {
  return ["p50", "p99"].flatMap((name) => {
    const last = past[name].at(-1);
    return last > 0 ? [{ ...endOf(Math.log10(last), name, colors(`--${name}`)), yanchor: name === "p50" ? "top" : "bottom" }] : [];
  });
}

function base(colors) {
  const axis = { gridcolor: colors("--grid"), linecolor: colors("--line"), zeroline: false, fixedrange: true, automargin: true, ticks: "", tickfont: { size: 12 } };
  return {
    margin: { l: 48, r: 14, t: 8, b: 32 }, autosize: true, showlegend: false, hovermode: "closest", dragmode: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", uirevision: "kept",
    font: { family: "system-ui, sans-serif", size: 12, color: colors("--muted") },
    hoverlabel: { bgcolor: colors("--card"), bordercolor: colors("--line"), font: { color: colors("--text") }, align: "left" },
    xaxis: { ...axis }, yaxis: { ...axis, rangemode: "tozero" },
  };
}

function merged(first, second) {
  return { ...first, ...second, xaxis: { ...first.xaxis, ...second.xaxis }, yaxis: { ...first.yaxis, ...second.yaxis } };
}

/** The current colours of dashboard.css, which follow the light or dark scheme. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(name).trim();
}

function seen([least, most]) {
  return least === most ? `only batches of ${counted(least, "row")}` : `batches of ${number(least)} to ${number(most)} rows`;
}

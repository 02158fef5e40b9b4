// The charts, drawn by Plotly once it has loaded, and their captions.

import { keep, put } from "./dom.js";
import { count, counted, inUnits, msExact, msText, number, percent, unitOf } from "./format.js";
import { BATCHES_S } from "./history.js";
import { CONFIG, endLabels, layout, level, line, logAxis, palette, timeAxis, upTo } from "./plot.js";
import { RELEASES } from "./words.js";

// The axis of a young gateway is as long as its life, and at least this.
const SHORTEST_S = 60;
const LABELS_PX = 44;
const LONG_LABELS_PX = 66;

export class Charts {
  #page;
  #fields;

  constructor(page, fields) {
    this.#page = page;
    this.#fields = fields;
  }

  /** Draw the charts of an API: its status, its past, and the chosen range in seconds. */
  draw(api, past, status, range) {
    const colors = palette(this.#page);
    const span = Math.min(range, Math.max(SHORTEST_S, status.uptime_s));
    const series = past.last(span, status.time);
    this.#legend(past.batches);
    // Before the charts are drawn, because they share a row with it.
    this.#fields.paddingCard.hidden = !past.isPadded;
    for (const [name, make] of Object.entries(CHARTS)) {
      const place = this.#page.querySelector(`[data-chart=${name}]`);
      if (place.closest("[hidden]")) continue;
      const [width, height] = [place.clientWidth, place.clientHeight];
      const { text, empty, data, ...own } = make({ api, series, batches: past.batches, now: status.time, span, width, height, colors });
      this.#fields.text(`${name}Text`, text);
      place.setAttribute("aria-label", empty ?? text);
      place.classList.toggle("blank", Boolean(empty));
      if (empty) {
        if (place.querySelector(".plot-container")) globalThis.Plotly.purge(place);
        put(place, empty);
      } else if (globalThis.Plotly) {
        if (!place.querySelector(".plot-container")) place.replaceChildren();
        globalThis.Plotly.react(place, data, layout(colors, own), CONFIG);
      }
    }
  }

  /** The reasons of the batches that are drawn. */
  #legend(batches) {
    const present = new Set(batches.map(({ reason }) => reason));
    const shown = Object.entries(RELEASES).filter(([reason]) => present.has(reason));
    keep(this.#fields.sizesLegend, shown, "li", (item, [, { label, color, glyph }]) => {
      item.style.setProperty("--color", `var(${color})`);
      item.dataset.glyph = glyph;
      put(item, label);
    });
  }
}

/** The last known value, next to which a line has its label, also when the traffic has ended. */
const last = (values) => values.findLast((value) => value !== null) ?? NaN;

const CHARTS = { latency, sizes, rates, queue, failures, padding, times };

function latency({ api, series, span, width, height, colors }) {
  const goal = api.goal_ms;
  const text = byClass(api, latencyText);
  const known = [...series.p50_ms, ...series.p99_ms].filter((value) => value > 0);
  if (!known.length) return { text, empty: `Too few requests in the last ${told(span)}` };
  const yaxis = logAxis(goal === null ? known : [...known, goal], "ms");
  const lines = [["p50", "--p50", "dot"], ["p95", "--p95", "dash"], ["p99", "--p99", "solid"]];
  const labels = lines.map(([name, color]) => ({ y: Math.log10(last(series[`${name}_ms`])), text: name, color: colors(color) }));
  if (goal !== null) labels.push({ y: Math.log10(goal), text: "goal", color: colors("--goal") });
  return {
    text,
    data: lines.map(([name, color, dash]) => line(series.ago, series[`${name}_ms`], colors(color), { name, unit: "ms", dash })),
    margin: { r: LABELS_PX }, xaxis: timeAxis(span, width), yaxis,
    shapes: goal === null ? [] : [level(goal, colors("--goal"))],
    annotations: endLabels(labels, yaxis.range, height),
  };
}

function sizes({ batches, now, width, colors }) {
  const latest = batches.at(-1);
  if (!latest) return { text: "One point per batch.", empty: `No batch in the last ${told(BATCHES_S)}` };
  const data = Object.entries(RELEASES).map(([name, { label, color, symbol }]) => {
    const these = batches.filter(({ reason }) => reason === name);
    return {
      type: "scatter", mode: "markers", name: label,
      x: these.map(({ ended }) => ended - now), y: these.map(({ rows }) => rows),
      text: these.map(described), hovertemplate: "%{text}<extra></extra>",
      marker: { color: colors(color), symbol, size: 7, opacity: 0.75, line: { width: 0 } },
    };
  });
  const of = latest.rows === latest.requests ? "" : ` of ${counted(latest.requests, "request")}`;
  return {
    text: `One point per batch, at most ten per second. The latest has ${counted(latest.rows, "row")}${of}.`,
    data, xaxis: timeAxis(BATCHES_S, width), yaxis: upTo(Math.max(4, ...batches.map(({ rows }) => rows)), "rows"),
  };
}

function rates({ api, series, span, width, height, colors }) {
  const highest = Math.max(1, ...series.rate_rows);
  const capacity = api.capacity_rows;
  // A capacity far above the arrivals would flatten their line.
  const isFar = capacity !== null && capacity > 4 * highest;
  const tops = isFar ? [highest] : [highest, ...series.capacity_rows];
  const unit = `${unitOf(api)}/s`;
  const yaxis = upTo(Math.max(...tops), unit);
  const arrived = api.rate_rows === null ? "Too few requests in the last 30 s" : `${inUnits(api, api.rate_rows, number(api.rate_rows))}/s arrived`;
  const able = capacity === null ? `${api.estimate ? "no recent batch" : "too few batches"} to know the capacity` : `the workers can answer ${api.capacity_is_least ? "at least " : ""}${inUnits(api, capacity, number(capacity))}/s`;
  const data = [line(series.ago, series.rate_rows, colors("--rate"), { name: "arrivals", unit, fill: colors("--rate-fill") })];
  if (!isFar) data.push(line(series.ago, series.capacity_rows, colors("--goal"), { name: "capacity", unit, dash: "dash" }));
  const labels = [
    { y: last(series.rate_rows), text: "arrivals", color: colors("--rate") },
    { y: isFar ? NaN : capacity ?? NaN, text: "capacity", color: colors("--goal") },
  ];
  return {
    text: `${arrived}; ${able}${isFar ? ", far above this chart" : ""}.`,
    data, margin: { r: LONG_LABELS_PX }, xaxis: timeAxis(span, width), yaxis, annotations: endLabels(labels, yaxis.range, height),
  };
}

function queue({ api, series, span, width, colors }) {
  return {
    text: byClass(api, ({ queued_requests, queued_rows, oldest_ms }) => (queued_requests
      ? `${counted(queued_requests, "request")} with ${inUnits(api, queued_rows)} queued, the oldest for ${msText(oldest_ms)}.`
      : "Nothing is queued now.")),
    data: [line(series.ago, series.queued_rows, colors("--queue"), { name: "queued", unit: unitOf(api), fill: colors("--queue-fill") })],
    xaxis: timeAxis(span, width), yaxis: upTo(Math.max(4, ...series.queued_rows), unitOf(api)),
  };
}

function failures({ api, series, span, width, height, colors }) {
  const text = api.error_share === null
    ? "No request was answered in the last 30 s."
    : `Of ${counted(api.answered, "request")}, ${percent(api.error_share)} failed and ${percent(api.refused_share)} were refused.`;
  const [failed, refused] = [series.error_share, series.refused_share].map((shares) => shares.map((share) => (share === null ? null : 100 * share)));
  const highest = Math.max(...failed, ...refused);
  if (!(highest > 0)) {
    const answered = failed.some((share) => share !== null);
    return { text, empty: answered ? `No errors and no refusals in the last ${told(span)}` : `No request in the last ${told(span)}` };
  }
  const yaxis = { ...upTo(Math.max(5, highest), "% of requests"), range: [0, Math.min(105, 1.12 * Math.max(5, highest))] };
  const lines = [["errors", failed, "--bad", "solid"], ["refused", refused, "--warn", "dash"]];
  const labels = lines.map(([name, values, color]) => ({ y: last(values), text: name, color: colors(color) }));
  return {
    text,
    data: lines.map(([name, values, color, dash]) => line(series.ago, values, colors(color), { name, unit: "%", dash })),
    margin: { r: LONG_LABELS_PX }, xaxis: timeAxis(span, width), yaxis, annotations: endLabels(labels, yaxis.range, height),
  };
}

function padding({ api, series, span, width, colors }) {
  const shares = series.padding_share.map((share) => (share === null ? null : 100 * share));
  const highest = Math.max(5, ...shares);
  return {
    text: `${percent(api.padding?.share ?? 0)} of the work of the last batches was padding.`,
    data: [line(series.ago, shares, colors("--padding"), { name: "padding", unit: "%", fill: colors("--padding-fill") })],
    xaxis: timeAxis(span, width), yaxis: { ...upTo(highest, "% of work"), range: [0, Math.min(105, 1.12 * highest)] },
  };
}

function times({ api, batches, colors }) {
  if (!batches.length && !api.estimate) return { text: "One point per batch.", empty: "Too few batches to say" };
  const { intercept_ms, slope_ms, spread, rows } = api.estimate ?? { intercept_ms: 0, slope_ms: 0, spread: 0, rows: null };
  // A warm-up may have run far larger batches than the traffic makes: the points need the room.
  const most = 1.05 * Math.max(4, ...(batches.length ? batches.map(({ cost }) => cost) : [rows?.[1] ?? 0]));
  const at = (size) => intercept_ms + slope_ms * size;
  const marks = (worked, name, symbol, color) => {
    const these = batches.filter((batch) => batch.worked === worked);
    return {
      type: "scatter", mode: "markers", name, x: these.map(({ cost }) => cost), y: these.map(({ actual_ms }) => actual_ms),
      text: these.map(described), hovertemplate: "%{text}<extra></extra>", marker: { color: colors(color), symbol, size: 6, opacity: 0.5 },
    };
  };
  const edge = (factor, fill) => ({
    type: "scatter", mode: "lines", x: [0, most], y: [at(0) * factor, at(most) * factor], line: { width: 0 }, fill, fillcolor: colors("--band"), hoverinfo: "skip",
  });
  const data = [marks(true, "batch", "circle", "--batch"), marks(false, "failed batch", "x", "--bad")];
  if (rows) {
    data.unshift(edge(Math.max(0, 1 - spread)), edge(1 + spread, "tonexty"));
    data.push({ type: "scatter", mode: "lines", x: [0, most], y: [at(0), at(most)], line: { color: colors("--goal"), width: 2 }, hoverinfo: "skip" });
  }
  const unit = api.counts === "cost" ? "unit of cost" : "row";
  const highest = Math.max(1, ...batches.map(({ actual_ms }) => actual_ms), rows ? at(most) * (1 + spread) : 0);
  return {
    text: rows
      ? `Estimate: ${msText(intercept_ms)} + ${msText(slope_ms)} per ${unit} (±${number(Math.max(1, 100 * spread))} %). ${seen(rows)}`
      : "Too few batches have succeeded to estimate the time of one.",
    data, xaxis: { title: { text: unitOf(api), standoff: 4 }, range: [0, most], nticks: 6 },
    yaxis: upTo(highest, "ms"), margin: { b: 44 },
  };
}

/** A text about the requests of an API, or one for each of its classes. The lines show the first class. */
const byClass = (api, text) => (api.classes.length ? api.classes.map((each) => `${each.name}: ${text(each)}`).join(" ") : text(api));

const latencyText = ({ latency: recent, goal_ms }) =>
  (recent ? `p50 ${msText(recent.p50_ms)}, p95 ${msText(recent.p95_ms)}, p99 ${msText(recent.p99_ms)}` : "Too few requests in the last 30 s")
  + (goal_ms === null ? "; no goal." : `; goal ${msExact(goal_ms)}.`);

function described(batch) {
  const label = RELEASES[batch.reason]?.label ?? batch.reason;
  return `<b>batch ${batch.number}</b><br>${counted(batch.rows, "row")} of ${counted(batch.requests, "request")}, worker ${batch.worker}`
    + `<br>${label}, after ${msText(batch.waited_ms)}<br>took ${msText(batch.actual_ms)}, predicted ${msText(batch.predicted_ms)}${batch.worked ? "" : "<br>failed"}`;
}

const seen = ([least, most]) => (least === most ? `All batches had the size ${count(least)}.` : `Batches had sizes from ${count(least)} to ${count(most)}.`);

/** A span of time in words. */
const told = (seconds) => (seconds < 90 ? "minute" : `${Math.round(seconds / 60)} min`);

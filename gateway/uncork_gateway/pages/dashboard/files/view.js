// The part of the page about one API, besides its charts.

import { build, keep, put } from "./dom.js";
import { bytes, count, counted, duration, ms, msExact, msText, number, percent, sum, unitOf } from "./format.js";
import { serviceOf, workersOf } from "./services.js";
import { CALM, GRAVE, RELEASES, SHEDS, verdict } from "./words.js";

const CLIENT_GONE = "499";
// Above this share of the capacity latency rises quickly.
const NEARLY_FULL = 0.85;
// Workers that are busy for so much more of their time than the share of the capacity run small batches.
const SPARE = 0.2;

export class ApiView {
  #fields;

  constructor(fields) {
    this.#fields = fields;
  }

  show(api, status) {
    const service = serviceOf(api, status);
    this.#heading(api);
    this.#hero(api, service);
    this.#fields.text("says", api.sentence);
    this.#fields.waitsLine.hidden = !api.queued_requests;
    this.#fields.text("waits", api.waits_for);
    this.#advice(api.advice);
    this.#tiles(api, service, workersOf(service, status));
    this.#shares(api.shares);
    this.#fields.text("whySize", api.why_this_size);
    this.#releases(api.releases);
    this.#answers(api);
    this.#fields.optional("whyRefused", api.why_refused);
    this.#failure(api, status.time);
  }

  #heading(api) {
    this.#fields.text("name", api.id);
    const most = api.counts === "cost" ? `a cost of ${count(api.max_batch_rows)}` : counted(api.max_batch_rows, "row");
    const cap = Number.isFinite(api.max_batch_rows) ? `at most ${most} per batch` : "no batch limit";
    const chips = [api.route, api.goal_ms === null ? "no goal" : `goal ${msExact(api.goal_ms)}`, cap, `policy ${api.policy}`];
    keep(this.#fields.chips, chips.filter(Boolean), "li", (item, text) => put(item, text));
  }

  #advice(advice) {
    this.#fields.advice.hidden = !advice.length;
    keep(this.#fields.advice, advice, "li", (item, { code, text }) => {
      item.dataset.code = code;
      item.dataset.tone = GRAVE.has(code) ? "bad" : CALM.has(code) ? "info" : "warn";
      put(item, text[0].toUpperCase() + text.slice(1));
    });
  }

  // Figures

  #hero(api, service) {
    const [[state, tone], [limit, limitTone]] = verdict(api, service);
    this.#tile("apiState", [state, ""], limit, limitTone);
    this.#fields.apiState.dataset.tone = tone;

    const few = sum(api.requests) ? "too few requests to say" : "no request in the last 30 s";
    const rate = api.rate_rows;
    this.#tile("rate", rate === null ? null : [number(rate), `${unitOf(api)}/s`], rate === null ? few : `${number(api.answered / api.window_s)} requests/s`);

    const p99 = api.latency?.p99_ms ?? null;
    const goal = api.goal_ms;
    const isLate = p99 !== null && goal !== null && p99 > goal;
    this.#tile("p99", p99 === null ? null : ms(p99), goal === null ? "no goal" : `goal ${msExact(goal)}`, isLate ? "bad" : "muted");
    this.#meter("p99Meter", p99 === null || goal === null ? null : p99 / goal, isLate ? "bad" : "good");

    const wrong = sum(api.errors) + api.refused;
    const share = api.error_share === null ? null : api.error_share + api.refused_share;
    this.#tile("errorRate", share === null ? null : [percent(share), ""], share === null ? "no request in the last 30 s" : `${count(wrong)} of ${counted(api.answered, "request")}`, wrong ? "bad" : "muted");

    const load = api.capacity_rows && rate !== null ? rate / api.capacity_rows : null;
    const loadTone = load > 1 ? "bad" : load > NEARLY_FULL ? "warn" : "good";
    const unknown = api.estimate ? "no recent batch" : "too few batches to say";
    const capacity = api.capacity_rows === null ? unknown : `of ${api.capacity_is_least ? "at least " : ""}${number(api.capacity_rows)} ${unitOf(api)}/s`;
    this.#tile("saturation", load === null ? null : [percent(load), ""], capacity, loadTone === "good" ? "muted" : loadTone);
    this.#meter("saturationMeter", load, loadTone);
  }

  #tiles(api, { utilization }, workers) {
    const succeeded = api.answered - sum(api.errors) - api.refused;
    const rate = api.rate_rows === null ? null : [number(succeeded / api.window_s), "requests/s"];
    this.#tile("answered", rate, `${counted(succeeded, "request")} in ${number(api.window_s)} s`);

    const statuses = Object.entries(api.errors).map(([code, times]) => `${count(times)} × ${code}`);
    this.#tile("errors", [count(sum(api.errors)), ""], statuses.join(", ") || "no failed request", statuses.length ? "bad" : "muted");

    const [[reason] = []] = Object.entries(api.sheds).sort(([, one], [, other]) => other - one);
    this.#tile("refused", [count(api.refused), ""], api.refused ? SHEDS[reason] : "no refused request", api.refused ? "warn" : "muted");

    const busy = workers.filter(({ state }) => state === "busy").length;
    // Workers with time to spare run small batches: they can be busy long before the capacity is reached.
    const isSpare = api.rate_rows !== null && api.rate_rows / api.capacity_rows < utilization - SPARE;
    const now = `${busy} of ${workers.length} busy now${isSpare ? ", in small batches" : ""}`;
    this.#tile("utilization", utilization === null ? null : [percent(utilization), ""], now);

    this.#tile("queued", [count(api.queued_rows), unitOf(api)], api.queued_requests ? `${counted(api.queued_requests, "request")}, ${bytes(api.queued_bytes)}` : "empty");

    this.#tile("batch", api.mean_batch_rows === null ? null : [number(api.mean_batch_rows), unitOf(api)], balance(api));
  }

  /** `value` is a number and its unit, or null if it is unknown. */
  #tile(name, value, sub, tone = "muted") {
    const field = this.#fields[name];
    build(field, "span", "small");
    put(field.firstChild, value ? value[0] : "–");
    put(field.lastChild, value?.[1] ? ` ${value[1]}` : "");
    this.#fields.tone(`${name}Sub`, sub, tone);
  }

  #meter(name, share, tone) {
    const meter = this.#fields[name];
    build(meter, "i");
    meter.dataset.tone = tone;
    meter.firstChild.style.width = `${100 * Math.min(1, share ?? 0)}%`;
  }

  // Lists

  #shares(shares) {
    const parts = shares
      ? [["Queue", shares.queue_ms, "waiting for its batch", "--queue"], ["Batch", shares.batch_ms, "from release to reply", "--batch"], ["Transport", shares.transport_ms, "reading and writing", "--transport"]]
      : [];
    const total = parts.reduce((all, [, value]) => all + value, 0) || 1;
    this.#fields.optional("sharesNone", parts.length ? "" : "Too few requests to say.");
    this.#fields.stack.hidden = !parts.length;
    keep(this.#fields.stack, parts, "i", (piece, [, value, , color]) => {
      piece.style.width = `${(100 * value) / total}%`;
      piece.style.background = `var(${color})`;
    });
    list(this.#fields.shares, parts.map(([label, value, why, color]) => ({ label, why, color, dot: true, value: msText(value) })));
  }

  #releases(releases) {
    const total = sum(releases);
    const known = Object.entries(RELEASES).filter(([reason]) => releases[reason]);
    list(this.#fields.releases, known.map(([reason, { label, color }]) => ({
      key: reason, label, color, value: count(releases[reason]), share: releases[reason] / total,
    })));
  }

  /** Answers by outcome: a refusal has a reason, a failure a status. */
  #answers({ requests, protocols, errors, sheds, refused }) {
    const failed = sum(errors);
    const succeeded = sum(only(requests, (status) => status < "400"));
    const wrong = only(requests, (status) => status >= "400" && status < "500" && status !== CLIENT_GONE);
    const gone = requests[CLIENT_GONE] ?? 0;
    const total = sum(requests);
    const outcomes = [
      { key: "answered", label: "Answered", color: "--good", amount: succeeded },
      { key: "rejected", label: "Rejected, client's error", color: "--info", amount: sum(wrong), why: listed(wrong) },
      { key: "gone", label: "Client disconnected", color: "--muted", amount: gone },
      { key: "refused", label: "Refused", color: "--warn", amount: refused, why: listed(sheds, (reason) => SHEDS[reason]) },
      { key: "failed", label: "Failed", color: "--bad", amount: failed, why: listed(errors) },
    ].filter(({ amount }) => amount);
    this.#fields.optional("answersNone", outcomes.length ? "" : "No request in the last 30 s.");
    list(this.#fields.answers, outcomes.map((outcome) => ({ ...outcome, value: count(outcome.amount), share: outcome.amount / total })));
    const { http = 0, grpc = 0 } = protocols;
    this.#fields.optional("protocols", grpc ? `${count(http)} over HTTP, ${count(grpc)} over gRPC.` : "");
  }

  #failure({ failure, errors }, now) {
    this.#fields.failure.hidden = !failure;
    if (!failure) return;
    const { error, place, message, error_id, requests, first, last } = failure;
    const since = new Date(1000 * first).toLocaleTimeString();
    const text = `Last exception: ${error}${place && ` at ${place}`}${message ? `: ${message}` : ""}. `
      + `${counted(requests, "request")} since ${since}, the last ${duration(Math.max(0, now - last))} ago; error id ${error_id} in the log.`;
    this.#fields.tone("failure", text, sum(errors) ? "bad" : "muted");
  }
}

/** The batch size with which the workers keep up, or why it is unknown. */
function balance(api) {
  if (api.balanced_rows !== null) return `workers keep up at ${number(api.balanced_rows)}`;
  if (!api.estimate) return "too few batches to say";
  if (api.rate_rows === null) return "too few requests to say";
  return api.rate_rows > api.capacity_rows ? "no size keeps up" : "time per row not known yet";
}

const only = (counts, matches) => Object.fromEntries(Object.entries(counts).filter(([name]) => matches(name)));

const listed = (counts, label = (name) => name) => Object.entries(counts).map(([name, times]) => `${count(times)} × ${label(name)}`).join(", ");

/** Rows of a label, a value, a bar as wide as the share, and details. */
function list(element, rows) {
  keep(element, rows, "li", (row, { key = "", label, why = "", color, value, share, dot }) => {
    build(row, "b", "span", "i", "small");
    const [name, amount, bar, details] = row.children;
    row.dataset.key = key;
    row.style.setProperty("--color", `var(${color})`);
    row.classList.toggle("dot", Boolean(dot));
    put(name, label);
    put(amount, value);
    bar.hidden = share === undefined;
    bar.style.setProperty("--share", `${100 * (share ?? 0)}%`);
    details.hidden = !why;
    put(details, why);
  });
}

// Everything on the page but the charts. Text is only ever set as text: names come from services and clients.

import { bytes, counted, duration, ms, msText, number, percent, sum } from "./format.js";
import { CALM, GRAVE, RELEASES, SHEDS, STATES, WORKERS, tone, verdict } from "./words.js";

export class View {
  #fields = {};
  #chosen = chosen();
  #changed;
  #since = 0;
  #ticking = 0;

  /** `changed` is called when the reader selects another api. */
  constructor(page, changed) {
    for (const element of page.querySelectorAll("[data-f]")) this.#fields[element.dataset.f] = element;
    this.#changed = changed;
    addEventListener("hashchange", () => {
      this.#chosen = chosen();
      changed();
    });
  }

  live() {
    clearInterval(this.#ticking);
    this.#fields.lost.hidden = true;
    document.body.classList.remove("old");
    this.#tone("live", "live", "good");
  }

  /** `since`: milliseconds since 1970; null if nothing has been shown yet. */
  lost(why, since) {
    clearInterval(this.#ticking);
    const tell = () => {
      const shown = since === null ? "" : ` This page is ${duration((Date.now() - since) / 1000)} old.`;
      this.#text("lost", `${why} Trying again.${shown}`);
    };
    tell();
    this.#ticking = setInterval(tell, 1000);
    this.#fields.lost.hidden = false;
    document.body.classList.add("old");
    this.#tone("live", "lost", "bad");
  }

  /** Show a status; returns the selected api, if there is any. */
  show(status) {
    const alarm = status.state === "ready" ? "" : `${STATES[status.state][0]}: `;
    document.title = `${alarm}${status.server ?? "Uncork"} · Uncork`;
    this.#text("server", status.server ?? "Uncork");
    this.#tone("state", ...STATES[status.state]);
    this.#text("sentence", status.sentence);
    this.#text("uptime", duration(status.uptime_s));
    this.#text("version", status.version);
    this.#text("window", `Figures without a time axis are of the last ${number(status.window_s)} s.`);
    this.#workers(status);
    const api = status.apis.find(({ name }) => name === this.#chosen) ?? status.apis[0];
    this.#choice(status.apis, api);
    this.#empty(status, api);
    this.#fields.api.hidden = !api;
    if (api) this.#api(api, status.time);
    return api;
  }

  // One api

  #api(api, now) {
    this.#text("name", api.name);
    const cap = Number.isFinite(api.max_batch_rows) ? `at most ${counted(api.max_batch_rows, "row")} in a batch` : "no batch cap";
    const chips = [api.route, `policy ${api.policy}`, api.goal_ms === null ? "no goal" : `goal ${msText(api.goal_ms)}`, cap];
    keep(this.#fields.chips, chips.filter(Boolean), "li", (item, text) => put(item, text));
    this.#tone("verdict", ...verdict(api));
    this.#text("says", api.sentence);
    this.#text("waits", api.waits_for);
    this.#fields.advice.hidden = !api.advice.length;
    keep(this.#fields.advice, api.advice, "li", (item, { code, text }) => {
      item.dataset.code = code;
      item.classList.toggle("calm", CALM.has(code));
      item.classList.toggle("grave", GRAVE.has(code));
      put(item, text[0].toUpperCase() + text.slice(1));
    });
    this.#tiles(api);
    this.#shares(api.shares);
    this.#text("whySize", api.why_this_size);
    this.#releases(api.releases);
    this.#answers(api.requests, api.sheds);
    this.#none("whyRefused", !api.why_refused, api.why_refused);
    this.#failure(api, now);
  }

  #failure({ failure, errors }, now) {
    this.#fields.failure.hidden = !failure;
    if (!failure) return;
    const { error, place, message, error_id, requests, first, last } = failure;
    const since = new Date(1000 * first).toLocaleTimeString();
    this.#fields.failure.dataset.tone = sum(errors) ? "bad" : "muted";
    this.#text("failure", `Last exception: ${error}${place && ` at ${place}`}${message ? `: ${message}` : ""}. `
      + `${counted(requests, "request")} since ${since}, the last ${duration(Math.max(0, now - last))} ago; error id ${error_id}.`);
  }

  #tiles(api) {
    const few = sum(api.requests) ? "too few requests to say" : "no request";
    const load = api.capacity_rows && api.rate_rows !== null ? api.rate_rows / api.capacity_rows : null;
    const rateSub = load === null ? "" : `${percent(load)} of capacity`;
    this.#tile("rate", api.rate_rows === null ? null : [number(api.rate_rows), "rows/s"], api.rate_rows === null ? few : rateSub);
    this.#tone("rateSub", null, load > 1 ? "bad" : load > 0.85 ? "warn" : "muted");
    const capacity = api.capacity_is_least ? "or more, in larger batches than so far" : "all workers, within the goal";
    this.#tile("capacity", api.capacity_rows === null ? null : [number(api.capacity_rows), "rows/s"], api.capacity_rows === null ? "too few batches to say" : capacity);
    const late = api.latency && api.goal_ms !== null && api.latency.p99_ms > api.goal_ms;
    this.#tile("p99", api.latency && ms(api.latency.p99_ms), api.goal_ms === null ? "no goal" : `goal ${msText(api.goal_ms)}`);
    this.#tone("p99Sub", null, late ? "bad" : "muted");
    const balanced = api.balanced_rows === null ? "" : `balanced at ${number(api.balanced_rows)}`;
    this.#tile("batch", api.mean_batch_rows === null ? null : [number(api.mean_batch_rows), "rows"], balanced);
    this.#tile("queued", [number(api.queued_rows), "rows"], `${counted(api.queued_requests, "request")}, ${bytes(api.queued_bytes)}`);
    this.#share("errors", api.error_share, sum(api.errors), api.answered);
    this.#share("refused", api.refused_share, api.refused, api.answered);
  }

  /** A tile of errors or refusals. */
  #share(name, share, count, answered) {
    this.#tile(name, share === null ? null : [percent(share), ""], share === null ? "no request" : `${number(count)} of ${counted(answered, "request")}`);
    this.#tone(`${name}Sub`, null, count ? "bad" : "muted");
  }

  #tile(name, value, sub) {
    const field = this.#fields[name];
    if (!field.childElementCount) field.replaceChildren(document.createElement("span"), document.createElement("small"));
    put(field.firstChild, value ? value[0] : "–");
    put(field.lastChild, value ? ` ${value[1]}` : "");
    this.#text(`${name}Sub`, sub);
  }

  #shares(shares) {
    const parts = shares ? [["queue", shares.queue_ms, "waiting", "--queue"], ["batch", shares.batch_ms, "from release to reply", "--batch"], ["transport", shares.transport_ms, "reading and writing", "--transport"]] : [];
    const total = parts.reduce((all, [, value]) => all + value, 0) || 1;
    this.#none("sharesNone", parts.length, "Too few requests to say.");
    this.#fields.stack.hidden = !parts.length;
    keep(this.#fields.stack, parts, "i", (piece, [, value, , color]) => {
      piece.style.width = `${(100 * value) / total}%`;
      piece.style.background = `var(${color})`;
    });
    table(this.#fields.shares, parts.map(([label, value, why, color]) => ({ label, why, color, value: msText(value), share: value / total })));
  }

  #releases(releases) {
    const total = sum(releases);
    const known = Object.keys(RELEASES).filter((reason) => releases[reason]);
    table(this.#fields.releases, known.map((reason) => ({
      ...RELEASES[reason], value: number(releases[reason]), share: releases[reason] / total,
    })));
  }

  #answers(requests, sheds) {
    const total = sum(requests);
    this.#none("answersNone", total + sum(sheds), "No request was answered.");
    const rows = Object.entries(requests).sort().map(([status, count]) => ({
      label: status === "499" ? "499, client had left" : status, color: `--${tone(status)}`, value: number(count), share: count / total,
    }));
    const refusals = Object.entries(sheds).map(([reason, count]) => ({
      label: "refused", why: SHEDS[reason] ?? reason, color: "--bad", value: number(count), share: total ? Math.min(1, count / total) : 1,
    }));
    table(this.#fields.answers, [...rows, ...refusals]);
  }

  // The whole gateway

  #choice(apis, shown) {
    this.#fields.apis.hidden = apis.length < 2;
    keep(this.#fields.apis, apis.length < 2 ? [] : apis, "a", (link, { name, state, rate_rows, advice }) => {
      if (!link.childElementCount) link.replaceChildren(document.createElement("b"), document.createElement("small"));
      link.href = `#${encodeURIComponent(name)}`;
      link.toggleAttribute("aria-current", name === shown.name);
      link.classList.toggle("advised", state !== "ok" || advice.some(({ code }) => !CALM.has(code)));
      link.classList.toggle("failing", state === "failing");
      put(link.firstChild, name);
      put(link.lastChild, rate_rows === null ? "" : `${number(rate_rows)} rows/s`);
    });
  }

  #empty(status, api) {
    const asked = api && (sum(api.requests) || sum(api.sheds) || api.queued_requests || api.estimate || api.failure);
    this.#fields.empty.hidden = Boolean(asked);
    if (asked) return;
    const elsewhere = document.documentElement.dataset.origin;
    const origin = elsewhere || location.origin;
    const send = "curl -i -H 'content-type: application/json' -d @request.json";
    this.#text("emptyTitle", api || status.server === "proxy" ? "No request yet" : "Nothing is served yet");
    this.#fields.emptyCode.hidden = !(api?.route || status.server === "proxy");
    if (status.server === "proxy") {
      this.#text("emptyText", "A model appears here once a server has answered a request for it with 2xx. Send to this proxy what you send to that server:");
      this.#text("emptyCode", `${send} ${origin}/v1/models/MODEL:predict`);
    } else if (api) {
      this.#text("emptyText", `Charts begin with the first batch. Send a request${elsewhere ? "" : "; there is an example at /docs"}:`);
      this.#text("emptyCode", `${send} ${origin}${api.route ?? "/"}`);
    } else {
      this.#text("emptyText", "APIs appear here once a worker has described its service.");
    }
  }

  #workers({ workers, restarts }) {
    this.#fields.workersCard.hidden = !workers.length;
    const foreign = workers.some(({ url }) => url);
    const busy = workers.filter(({ state }) => state === "busy").length;
    this.#text("workersTitle", foreign ? "Calls to servers" : "Workers");
    this.#text("whereHead", foreign ? "Server" : "Process");
    this.#text("workersText", `${busy} of ${workers.length} busy${restarts ? `, ${counted(restarts, "restart")} since the start` : ""}`);
    keep(this.#fields.workers, workers, "tr", (row, { index, state, doing, pid, url }) => {
      if (!row.childElementCount) {
        row.append(...["th", "td", "td", "td"].map((name) => document.createElement(name)));
        row.firstChild.scope = "row";
        row.children[1].append(document.createElement("span"));
      }
      put(row.children[0], String(index));
      const pill = row.children[1].firstChild;
      put(pill, state);
      pill.className = "pill";
      pill.dataset.tone = WORKERS[state] ?? "muted";
      put(row.children[2], doing);
      put(row.children[3], url ?? (pid === null ? "" : String(pid)));
    });
  }

  #none(name, count, text) {
    this.#fields[name].hidden = Boolean(count);
    this.#text(name, count ? "" : text);
  }

  #text(name, text) {
    put(this.#fields[name], text);
  }

  #tone(name, text, tone) {
    if (text !== null) this.#text(name, text);
    this.#fields[name].dataset.tone = tone;
  }
}

/** The api that the address names; empty if its fragment is malformed. */
function chosen() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

/** Set a text if it differs: unchanged text is not redrawn, and stays selected. */
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Give an element one child per item, and reuse its children. */
export function keep(parent, items, name, fill) {
  while (parent.childElementCount > items.length) parent.lastElementChild.remove();
  while (parent.childElementCount < items.length) parent.append(document.createElement(name));
  items.forEach((item, index) => fill(parent.children[index], item));
}

/** Rows of a label, a reason, a bar and a value. */
function table(element, rows) {
  keep(element.tBodies[0], rows, "tr", (row, { label, why, color, value, share }) => {
    if (!row.childElementCount) {
      row.innerHTML = '<th scope="row"><b></b><small></small></th><td class="bar"><i></i></td><td></td>';
    }
    put(row.querySelector("b"), label);
    put(row.querySelector("small"), why ?? "");
    const bar = row.querySelector("i");
    bar.style.width = `${Math.max(1, 100 * share)}%`;
    bar.style.background = `var(${color})`;
    put(row.lastElementChild, value);
  });
}

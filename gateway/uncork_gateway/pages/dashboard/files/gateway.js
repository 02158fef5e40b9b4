// The part of the page about the whole gateway: its state, its APIs, its workers, and what to do before the first request.

import { build, keep, put } from "./dom.js";
import { bytes, counted, duration, number, percent } from "./format.js";
import { LONGEST_S } from "./history.js";
import { ServicesView, summary, workersOf } from "./services.js";
import { STATES, WORKERS } from "./words.js";

// Stands for the address of the gateway in commands.
const ORIGIN = "http://GATEWAY";

export class GatewayView {
  #fields;
  #services;
  #ticking = 0;
  #base;
  #hasClients;

  constructor(fields) {
    this.#fields = fields;
    this.#services = new ServicesView(fields);
    const apart = document.documentElement.dataset.origin;
    this.#hasClients = !apart;
    this.#base = apart || new URL(".", location.href).href.replace(/\/$/, "");
    // An admin port has no page for clients.
    for (const link of document.querySelectorAll("[data-client]")) link.hidden = Boolean(apart);
  }

  // The connection

  live() {
    this.#connected("live", "good");
  }

  paused() {
    this.#connected("paused", "warn");
  }

  #connected(text, tone) {
    clearInterval(this.#ticking);
    this.#fields.lost.hidden = true;
    document.body.classList.remove("old");
    this.#fields.tone("live", text, tone);
  }

  /** `since`: milliseconds since 1970; null if nothing has been shown yet. */
  lost(why, since) {
    clearInterval(this.#ticking);
    const tell = () => {
      const age = since === null ? "" : ` This page is ${duration((Date.now() - since) / 1000)} old.`;
      this.#fields.text("lost", `${why} Trying again.${age}`);
    };
    tell();
    this.#ticking = setInterval(tell, 1000);
    this.#fields.lost.hidden = false;
    document.body.classList.add("old");
    this.#fields.tone("live", "lost", "bad");
  }

  // The status

  show(status, shown) {
    const [state, tone] = STATES[status.state];
    document.title = `${status.state === "ready" ? "" : `${state}: `}${status.server ?? "Uncork"} · Uncork`;
    this.#fields.text("server", status.server ?? "Uncork");
    this.#fields.tone("state", state, tone);
    this.#fields.text("sentence", summary(status));
    this.#fields.text("about", `Uncork ${status.version}, up for ${duration(status.uptime_s)}. Numbers cover the last ${number(status.window_s)} s unless they say otherwise.`);
    this.#services.show(status, shown);
    this.#workers(status);
  }

  #workers(status) {
    const { workers, services } = status;
    this.#fields.workersCard.hidden = !workers.length;
    const foreign = workers.some(({ url }) => url);
    this.#fields.text("workersTitle", foreign ? "Calls to servers" : "Workers");
    this.#fields.text("whereHead", foreign ? "Server" : "Process");
    this.#fields.gpusHead.hidden = !workers.some(({ gpus }) => gpus.length);
    const isOne = services.length < 2;
    this.#fields.text("workersText", isOne && services.length ? activity(services[0], workers) : "");
    const rows = isOne ? workers : services.flatMap((service) => withHeading(service, workersOf(service, status)));
    keep(this.#fields.workers, rows, "tr", showRow);
  }

  // Without a request

  /** Explain how to send a request, to an API if there is one. */
  idle(status, api, command) {
    this.#fields.empty.hidden = false;
    if (api) {
      this.#fields.text("emptyTitle", status.uptime_s < LONGEST_S ? `No request to ${api.id} yet` : `No request to ${api.id} in the last 15 minutes`);
      this.#fields.text("emptyText", `Figures and charts appear with the first request. Send one:`);
    } else if (status.server === "proxy") {
      this.#fields.text("emptyTitle", "No request yet");
      this.#fields.text("emptyText", "Send to this proxy what you send to the model server. A model appears here once the server has answered a request for it with 2xx:");
    } else if (!status.services.length) {
      this.#fields.text("emptyTitle", "No service");
      this.#fields.text("emptyText", "Services appear here once a reload adds one, or a client loads one.");
    } else {
      this.#fields.text("emptyTitle", "No API yet");
      this.#fields.text("emptyText", "APIs appear here once a worker has described its service.");
    }
    const proxied = `curl ${ORIGIN}/v1/models/MODEL:predict -H 'content-type: application/json' -d @request.json`;
    const line = command ?? (status.server === "proxy" ? proxied : "");
    this.#fields.optional("emptyCode", line.replace(ORIGIN, this.#base));
    this.#fields.emptyLinks.hidden = !api || !this.#hasClients;
  }

  busy() {
    this.#fields.empty.hidden = true;
  }
}

/** How many workers of a service are busy, and why there are as many. */
function activity({ restarts, scaling }, workers) {
  const busy = workers.filter(({ state }) => state === "busy").length;
  const restarted = restarts ? `, ${counted(restarts, "restart")} since the start` : "";
  return `${busy} of ${workers.length} busy${restarted}.${scaling ? ` ${scaling.sentence}` : ""}`;
}

function withHeading(service, workers) {
  return workers.length ? [{ heading: service.name, text: activity(service, workers) }, ...workers] : [];
}

function showRow(row, { heading, text, ...worker }) {
  const isHeading = heading !== undefined;
  // Rows are reused, and workers come and go.
  if (row.classList.contains("group") !== isHeading) row.replaceChildren();
  row.classList.toggle("group", isHeading);
  if (isHeading) showHeading(row, heading, text);
  else showWorker(row, worker);
}

function showHeading(row, heading, text) {
  build(row, "th");
  const cell = row.firstChild;
  cell.colSpan = 5;
  cell.scope = "rowgroup";
  build(cell, "b", "span");
  put(cell.firstChild, heading);
  put(cell.lastChild, text);
}

function showWorker(row, { index, state, doing, pid, host, url, gpus }) {
  build(row, "th", "td", "td", "td", "td");
  const [place, pill, does, where, uses] = row.children;
  place.scope = "row";
  build(pill, "span");
  put(place, String(index));
  put(pill.firstChild, state);
  pill.firstChild.className = "pill";
  pill.firstChild.dataset.tone = WORKERS[state] ?? "muted";
  put(does, doing);
  put(where, url ?? (pid === null ? "" : host === null ? String(pid) : `${pid} on ${host}`));
  uses.className = "gpus";
  keep(uses, gpus, "div", (line, gpu) => put(line, use(gpu)));
}

/** The memory of a GPU, the share of it that is the worker's, and how busy it is, as far as known. */
export function use({ name, memory_used_bytes, memory_total_bytes, worker_memory_bytes, utilization }) {
  const total = memory_total_bytes === null ? "" : ` of ${bytes(memory_total_bytes)}`;
  const known = [
    memory_used_bytes === null ? "" : `${bytes(memory_used_bytes)}${total}`,
    worker_memory_bytes === null ? "" : `${bytes(worker_memory_bytes)} by this worker`,
    utilization === null ? "" : `${percent(utilization)} busy`,
  ].filter(Boolean);
  // The UUID of a MIG instance is long; its start is enough to tell it from others.
  return `${name.slice(0, 12)}: ${known.join(", ") || "unknown"}`;
}

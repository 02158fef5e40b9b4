// The part of the page about the whole gateway: its state, its APIs, its workers, and what to do before the first request.

import { build, keep, put } from "./dom.js";
import { counted, duration, number } from "./format.js";
import { LONGEST_S } from "./history.js";
import { CALM, STATES, WORKERS } from "./words.js";

// Stands for the address of the gateway in commands.
const ORIGIN = "http://GATEWAY";

export class GatewayView {
  #fields;
  #ticking = 0;
  #base;
  #hasClients;

  constructor(fields) {
    this.#fields = fields;
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
    this.#fields.text("sentence", status.sentence);
    this.#fields.text("about", `Uncork ${status.version}, up for ${duration(status.uptime_s)}. Figures are of the last ${number(status.window_s)} s unless they say otherwise.`);
    this.#choice(status.apis, shown);
    this.#workers(status);
  }

  #choice(apis, shown) {
    this.#fields.apis.hidden = apis.length < 2;
    keep(this.#fields.apis, apis.length < 2 ? [] : apis, "a", (link, { name, state, rate_rows, advice }) => {
      build(link, "b", "small");
      link.href = `#${encodeURIComponent(name)}`;
      if (name === shown.name) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
      const isAdvised = state !== "ok" || advice.some(({ code }) => !CALM.has(code));
      link.dataset.tone = state === "failing" ? "bad" : isAdvised ? "warn" : "";
      link.title = state === "ok" ? "" : state;
      put(link.firstChild, name);
      put(link.lastChild, rate_rows === null ? "" : ` ${number(rate_rows)} rows/s`);
    });
  }

  #workers({ workers, restarts, scaling }) {
    this.#fields.workersCard.hidden = !workers.length;
    const foreign = workers.some(({ url }) => url);
    const busy = workers.filter(({ state }) => state === "busy").length;
    this.#fields.text("workersTitle", foreign ? "Calls to servers" : "Workers");
    this.#fields.text("whereHead", foreign ? "Server" : "Process");
    const restarted = restarts ? `, ${counted(restarts, "restart")} since the start` : "";
    this.#fields.text("workersText", `${busy} of ${workers.length} busy${restarted}.${scaling ? ` ${scaling.sentence}` : ""}`);
    keep(this.#fields.workers, workers, "tr", (row, { index, state, doing, pid, host, url }) => {
      build(row, "th", "td", "td", "td");
      const [number_, pill, does, where] = row.children;
      number_.scope = "row";
      build(pill, "span");
      put(number_, String(index));
      put(pill.firstChild, state);
      pill.firstChild.className = "pill";
      pill.firstChild.dataset.tone = WORKERS[state] ?? "muted";
      put(does, doing);
      put(where, url ?? (pid === null ? "" : host === null ? String(pid) : `${pid} on ${host}`));
    });
  }

  // Without a request

  /** Explain how to send a request, to an API if there is one. */
  idle(status, api, command) {
    this.#fields.empty.hidden = false;
    if (api) {
      this.#fields.text("emptyTitle", status.uptime_s < LONGEST_S ? `No request to ${api.name} yet` : `No request to ${api.name} in the last 15 minutes`);
      this.#fields.text("emptyText", `Figures and charts appear with the first request. Send one:`);
    } else if (status.server === "proxy") {
      this.#fields.text("emptyTitle", "No request yet");
      this.#fields.text("emptyText", "Send to this proxy what you send to the model server. A model appears here once the server has answered a request for it with 2xx:");
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

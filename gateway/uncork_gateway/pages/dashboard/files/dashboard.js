// Receives the gateway's events and updates the page.

import { Charts } from "./charts.js";
import { Fields } from "./dom.js";
import { GatewayView } from "./gateway.js";
import { History } from "./history.js";
import { chosen } from "./services.js";
import { settings } from "./settings.js";
import { ApiView } from "./view.js";

// Without an event for this long the connection counts as lost: the gateway sends one per second.
const SILENCE_MS = 8000;
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 5000;
// A hidden page disconnects after this time, so that it costs the gateway nothing.
const HIDDEN_MS = 60_000;

const fields = new Fields(document);
const history = new History();
const gateway = new GatewayView(fields);
const view = new ApiView(fields);
const charts = new Charts(document, fields);
const range = settings(document, show);
const address = "dashboard/events";

let source = null;
let watch = 0;
let retry = 0;
let hiding = 0;
let retryMs = FIRST_RETRY_MS;
let lostSince = 0;
let isPaused = false;

// The connection. A paused page has none: the gateway keeps the history.

function connect() {
  retry = 0;
  source = new EventSource(address);
  source.onmessage = (message) => receive(JSON.parse(message.data));
  source.onerror = () => lose();
  watchOut();
}

function disconnect() {
  clearTimeout(watch);
  clearTimeout(retry);
  retry = 0;
  source?.close();
  source = null;
}

function watchOut() {
  clearTimeout(watch);
  watch = setTimeout(lose, SILENCE_MS);
}

function receive(event) {
  retryMs = FIRST_RETRY_MS;
  lostSince = 0;
  watchOut();
  history.add(event);
  gateway.live();
  show();
}

/** Report that the gateway is gone or refuses, and keep retrying. */
async function lose() {
  disconnect();
  lostSince ||= Date.now();
  const since = lostSince;
  retry = setTimeout(connect, retryMs);
  retryMs = Math.min(LONGEST_RETRY_MS, retryMs * 1.5);
  const why = await reason();
  if (lostSince === since && !isPaused) gateway.lost(why, history.status ? since : null);
}

async function reason() {
  try {
    const reply = await fetch(address, { method: "HEAD" });
    if (reply.status === 401) return "This gateway requires an API key, which a browser cannot send. Start it with --admin-port, and open the dashboard on that port.";
    if (reply.status === 503) return "The gateway is shutting down, or 16 dashboards are open already.";
    return reply.ok ? "The connection to the gateway was lost." : `The gateway answered ${reply.status}.`;
  } catch {
    return "The gateway cannot be reached.";
  }
}

function pause() {
  isPaused = !isPaused;
  fields.text("pause", isPaused ? "Resume" : "Pause");
  if (isPaused) {
    disconnect();
    lostSince = 0;
    gateway.paused();
  } else {
    connect();
  }
}

// The page

function show() {
  const { status } = history;
  if (!status) return;
  const id = chosen();
  const api = status.apis.find((each) => each.id === id) ?? status.apis[0];
  gateway.show(status, api);
  const past = api && history.api(api.id);
  const isBusy = Boolean(api && (Object.keys(api.requests).length || api.queued_requests || api.failure || past.hasTraffic));
  fields.api.hidden = !isBusy;
  if (!isBusy) {
    gateway.idle(status, api, history.commands[api?.id]);
    return;
  }
  gateway.busy();
  view.show(api, status);
  if (!document.hidden) charts.draw(api, past, status, range());
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(disconnect, HIDDEN_MS);
  } else {
    if (!source && !retry && !isPaused) connect();
    show();
  }
});
fields.pause.addEventListener("click", pause);
addEventListener("hashchange", show);
addEventListener("pagehide", disconnect);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
// Texts and numbers appear before the chart library has loaded.
document.getElementById("plotly").addEventListener("load", show);

connect();
// A page that opens in the background is hidden without an event.
if (document.hidden) hiding = setTimeout(disconnect, HIDDEN_MS);

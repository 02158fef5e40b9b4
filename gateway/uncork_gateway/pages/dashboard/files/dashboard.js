// Receives the gateway's events and updates the page.

import { Charts } from "./charts.js";
import { History } from "./history.js";
import { View } from "./view.js";

// Without an event for this long the connection counts as lost: the gateway sends one per second.
const SILENCE_MS = 8000;
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 5000;
// A hidden page disconnects after this time, so that it costs the gateway nothing.
const HIDDEN_MS = 60_000;

const history = new History();
const view = new View(document, show);
const charts = new Charts(document);
const address = "dashboard/events";

let source = null;
let watch = 0;
let retry = 0;
let hiding = 0;
let retryMs = FIRST_RETRY_MS;
let lostSince = 0;

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
  view.live();
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
  if (lostSince === since) view.lost(why, history.status ? since : null);
}

async function reason() {
  try {
    const reply = await fetch(address, { method: "HEAD" });
    if (reply.status === 401) return "The gateway wants an API key, which a browser cannot send. Start it with --admin-port, and look there.";
    if (reply.status === 503) return "The gateway is shutting down, or too many dashboards are open.";
    return reply.ok ? "The connection to the gateway was lost." : `The gateway answers ${reply.status}.`;
  } catch {
    return "The gateway cannot be reached.";
  }
}

function show() {
  if (!history.status) return;
  const api = view.show(history.status);
  if (api && !document.hidden) charts.draw(api, history.apis.get(api.name), history.status.time);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(disconnect, HIDDEN_MS);
  } else {
    if (!source && !retry) connect();
    show();
  }
});
window.addEventListener("pagehide", disconnect);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
// Texts and numbers appear before the chart library has loaded.
document.getElementById("plotly").addEventListener("load", show);

connect();

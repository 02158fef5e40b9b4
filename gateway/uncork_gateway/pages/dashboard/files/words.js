// Labels and colours of reasons and states. Colours are names of properties in dashboard.css.
// All sentences come from the gateway's status.

/** Reasons of releases, in the order of the list. */
export const RELEASES = {
  idle: { label: "idle", color: "--idle", symbol: "circle" },
  not_worth_waiting: { label: "not worth waiting", color: "--worth", symbol: "diamond" },
  full: { label: "full", color: "--full", symbol: "square" },
  deadline: { label: "deadline", color: "--deadline", symbol: "triangle-up" },
  drain: { label: "drain", color: "--drain", symbol: "x" },
};

/** Reasons of refusals. */
export const SHEDS = {
  deadline: "the goal could not have been met",
  client_deadline: "the client's own deadline could not have been met",
  queue_full: "the queue was full",
  no_worker: "no worker was ready",
  draining: "the gateway was shutting down",
};

export const STATES = {
  ready: ["ready", "good"],
  degraded: ["degraded", "warn"],
  failing: ["failing", "bad"],
  starting: ["starting", "info"],
  not_ready: ["not ready", "bad"],
  draining: ["draining", "warn"],
};

export const WORKERS = { idle: "good", busy: "info", starting: "muted", lost: "bad" };

const LIMITS = {
  nothing: ["nothing limits it", "good"],
  workers: ["limited by workers", "warn"],
  goal: ["limited by its goal", "warn"],
  cap: ["limited by the batch cap", "warn"],
};

/** Label and tone of an api: its state if it is not ok, else its limit. */
export function verdict({ state, limited_by, requests, too_few_requests }) {
  if (state !== "ok") return STATES[state];
  if (limited_by !== "nothing" || !too_few_requests) return LIMITS[limited_by];
  return [Object.keys(requests).length ? "too few requests to say" : "idle", "muted"];
}

/** The tone of an answer's status. */
export function tone(status) {
  if (status < "300") return "good";
  return status < "500" ? "warn" : "bad";
}

/** Advice about requests that fail. */
export const GRAVE = new Set(["no_worker", "errors"]);

/** Advice that needs no action. */
export const CALM = new Set(["thin_traffic", "closed_loop"]);

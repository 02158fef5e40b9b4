// Reasons and states: what they are called, and how they look. Colours are names of properties in dashboard.css.
// What goes on is said by the gateway itself, in the sentences of its status.

/** Why batches were released, in the order in which they are listed. */
export const RELEASES = {
  idle: { label: "idle", color: "--idle", symbol: "circle" },
  not_worth_waiting: { label: "not worth waiting", color: "--worth", symbol: "diamond" },
  full: { label: "full", color: "--full", symbol: "square" },
  deadline: { label: "deadline", color: "--deadline", symbol: "triangle-up" },
  drain: { label: "drain", color: "--drain", symbol: "x" },
};

/** Why requests were refused. */
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

/** What to say of an api at one glance, and how it looks: that it fails, else what limits it. */
export function verdict({ state, limited_by, requests, too_few_requests }) {
  if (state !== "ok") return STATES[state];
  if (limited_by !== "nothing" || !too_few_requests) return LIMITS[limited_by];
  return [Object.keys(requests).length ? "too few requests to say" : "idle", "muted"];
}

/** What an answer's status says of it. */
export function tone(status) {
  if (status < "300") return "good";
  return status < "500" ? "warn" : "bad";
}

/** Advice on what keeps requests from being answered. */
export const GRAVE = new Set(["no_worker", "errors"]);

/** Advice that says that nothing is to be done. */
export const CALM = new Set(["thin_traffic", "closed_loop"]);

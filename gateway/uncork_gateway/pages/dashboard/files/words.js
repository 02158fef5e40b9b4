// Labels and colors of reasons and states. Colors are names of properties in dashboard.css.
// All sentences come from the gateway's status.

/** Reasons of releases, in the order of the list. */
export const RELEASES = {
  idle: { label: "worker idle", color: "--idle", symbol: "circle", glyph: "●" },
  not_worth_waiting: { label: "not worth waiting", color: "--worth", symbol: "diamond", glyph: "◆" },
  full: { label: "batch full", color: "--full", symbol: "square", glyph: "■" },
  deadline: { label: "hold limit", color: "--deadline", symbol: "triangle-up", glyph: "▲" },
  drain: { label: "shutting down", color: "--drain", symbol: "x", glyph: "✕" },
};

/** Reasons of refusals. */
export const SHEDS = {
  deadline: "could not have met the goal or the client's deadline",
  client_deadline: "the client's deadline had passed",
  queue_full: "the queue was full",
  too_many_groups: "requests of too many groups were queued",
  displaced: "requests of the first class needed their place",
  no_worker: "no worker was ready",
  draining: "the gateway was shutting down",
  no_room: "too many large bodies were arriving or being relayed",
  api_removed: "the API was removed or changed",
};

/** Label and tone of a state, of the gateway, a service or an API. */
export const STATES = {
  ok: ["OK", "good"],
  ready: ["ready", "good"],
  degraded: ["degraded", "warn"],
  failing: ["failing", "bad"],
  starting: ["starting", "info"],
  not_ready: ["not ready", "bad"],
  draining: ["draining", "warn"],
};

export const WORKERS = { idle: "good", busy: "info", starting: "muted", lost: "bad" };

const LIMITS = {
  nothing: ["no bottleneck", "muted"],
  workers: ["limited by the workers", "warn"],
  goal: ["limited by the goal", "warn"],
  cap: ["limited by the batch limit", "warn"],
};

// From this utilization on, the sentences of the status call workers busy.
const BUSY = 0.8;

/** The state of an API within that of its service, and what limits it: [state, tone], [limit, tone]. */
export function verdict(api, service) {
  if (["starting", "not_ready", "draining"].includes(service.state)) return [STATES[service.state], ["", "muted"]];
  if (!Object.keys(api.requests).length) return [["idle", "muted"], ["no request in the last 30 s", "muted"]];
  if (api.too_few_requests && api.limited_by === "nothing") return [STATES[api.state], ["too few requests to say more", "muted"]];
  const isLate = api.goal_ms !== null && api.latency?.p99_ms > api.goal_ms;
  if (isLate && api.limited_by === "nothing") return [STATES[api.state], ["p99 above the goal", "warn"]];
  const isBusy = api.limited_by === "nothing" && !api.streams && api.capacity_is_least && service.utilization >= BUSY;
  return [STATES[api.state], isBusy ? ["busy, but batches can grow", "muted"] : LIMITS[api.limited_by]];
}

/** Advice about requests that fail. */
export const GRAVE = new Set(["no_worker", "errors"]);

/** Advice that needs no action. */
export const CALM = new Set(["thin_traffic"]);

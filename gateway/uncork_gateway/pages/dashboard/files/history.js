// The page's history. It is bounded, because a page may stay open for days.

const SERIES = ["p50", "p95", "p99", "rate", "capacity", "errors", "refused"];
export const SERIES_S = 300;
export const POINTS_S = 60;
const MOST_POINTS = 1200;
// A longer gap between two events is drawn as one.
const GAP_S = 5;

export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.status = null;
    this.number = -1;
    this.apis = new Map();
  }

  /** Add an event; the history of another gateway at this address is dropped. */
  add({ status, batches }) {
    const began = status.time - status.uptime_s;
    if (this.status && Math.abs(began - (this.status.time - this.status.uptime_s)) > 2) this.clear();
    const gap = this.status && status.time - this.status.time > GAP_S;
    this.status = status;
    const before = this.apis;
    this.apis = new Map(status.apis.map((api) => [api.name, before.get(api.name) ?? new ApiHistory()]));
    for (const api of status.apis) this.apis.get(api.name).sample(status.time, api, gap);
    for (const batch of batches) {
      if (batch.number > this.number) this.apis.get(batch.api)?.batches.push(batch);
    }
    this.number = Math.max(this.number, ...batches.map((batch) => batch.number));
    for (const api of this.apis.values()) api.forget(status.time);
  }
}

class ApiHistory {
  constructor() {
    this.batches = [];
    this.time = [];
    for (const name of SERIES) this[name] = [];
  }

  sample(time, api, gap) {
    if (gap) this.#push(time - 1, {}, {});
    this.#push(time, api, api.latency ?? {});
  }

  #push(time, api, latency) {
    this.time.push(time);
    this.p50.push(latency.p50_ms ?? null);
    this.p95.push(latency.p95_ms ?? null);
    this.p99.push(latency.p99_ms ?? null);
    this.rate.push(api.rate_rows ?? null);
    this.capacity.push(api.capacity_rows ?? null);
    this.errors.push(percentage(api.error_share));
    this.refused.push(percentage(api.refused_share));
  }

  forget(now) {
    let old = 0;
    while (this.time[old] < now - SERIES_S) old += 1;
    for (const name of ["time", ...SERIES]) this[name].splice(0, old);
    let gone = Math.max(0, this.batches.length - MOST_POINTS);
    while (gone < this.batches.length && this.batches[gone].ended < now - POINTS_S) gone += 1;
    this.batches.splice(0, gone);
  }
}

const percentage = (share) => (typeof share === "number" ? 100 * share : null);

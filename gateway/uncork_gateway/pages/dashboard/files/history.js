// The past that the charts show. It is bounded, because a page may stay open for days.

export const LONGEST_S = 900;
export const BATCHES_S = 60;
const MOST_BATCHES = 1200;
// Two points further apart have a gap between them.
const GAP_S = 10;
// The same point arrives several times, with ages rounded to a tenth of a second.
const SAME_S = 0.5;
const COLUMNS = ["p50_ms", "p95_ms", "p99_ms", "rate_rows", "capacity_rows", "error_share", "refused_share", "queued_rows", "padding_share"];

export class History {
  status = null;
  commands = {};
  #number = -1;
  #apis = new Map();

  /** Add an event. The first event of a connection has everything that the gateway remembers. */
  add({ status, batches, history, commands, is_first }) {
    if (is_first) this.#clear();
    this.status = status;
    this.commands = commands;
    const before = this.#apis;
    this.#apis = new Map(status.apis.map(({ id }) => [id, before.get(id) ?? new ApiHistory()]));
    for (const [id, columns] of Object.entries(history)) this.#apis.get(id)?.add(columns, status.time);
    for (const batch of batches) {
      if (batch.number > this.#number) this.#apis.get(batch.api)?.batches.push(batch);
    }
    this.#number = Math.max(this.#number, ...batches.map((batch) => batch.number));
    for (const api of this.#apis.values()) api.forget(status.time);
  }

  api(id) {
    return this.#apis.get(id);
  }

  #clear() {
    this.#number = -1;
    this.#apis.clear();
  }
}

class ApiHistory {
  batches = [];
  time = [];

  constructor() {
    for (const name of COLUMNS) this[name] = [];
  }

  /** Whether there was a request in the time that it covers. */
  get hasTraffic() {
    return this.batches.length > 0 || this.rate_rows.some((rate) => rate > 0) || this.error_share.some((share) => share !== null);
  }

  /** Whether batches were padded in the time that it covers. */
  get isPadded() {
    return this.padding_share.some((share) => share > 0);
  }

  add(columns, now) {
    columns.age_s.forEach((age, at) => {
      const time = now - age;
      const latest = this.time.at(-1) ?? -Infinity;
      if (time < latest + SAME_S) return;
      if (time > latest + GAP_S && this.time.length) this.#push(latest + SAME_S, () => null);
      this.#push(time, (name) => columns[name][at]);
    });
  }

  #push(time, value) {
    this.time.push(time);
    for (const name of COLUMNS) this[name].push(value(name));
  }

  forget(now) {
    let old = 0;
    while (this.time[old] < now - LONGEST_S) old += 1;
    for (const name of ["time", ...COLUMNS]) this[name].splice(0, old);
    let gone = Math.max(0, this.batches.length - MOST_BATCHES);
    while (gone < this.batches.length && this.batches[gone].ended < now - BATCHES_S) gone += 1;
    this.batches.splice(0, gone);
  }

  /** The points of the last seconds, by column; `ago` is negative. */
  last(seconds, now) {
    // The point before the first one continues its line to the edge of the chart.
    const first = Math.max(0, this.time.findIndex((time) => time >= now - seconds) - 1);
    const recent = this.time.at(-1) >= now - seconds ? first : this.time.length;
    const series = { ago: this.time.slice(recent).map((time) => time - now) };
    for (const name of COLUMNS) series[name] = this[name].slice(recent);
    return series;
  }
}

// Numbers and times as people read them.

const TWO_DIGITS = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

// A decaying rate never reaches 0 by itself.
const NOTHING = 0.00005;

/** A measured value, with two significant digits. */
export const number = (value) => (Math.abs(value) < NOTHING ? "0" : TWO_DIGITS.format(value));

/** A count, exact; the cost of rows may be fractional. */
export const count = (value) => (Number.isInteger(value) ? WHOLE.format(value) : number(value));

export const counted = (value, what) => `${count(value)} ${what}${value === 1 ? "" : "s"}`;

/** The unit of the rates, queue and batch sizes of an API; `cost` is short for units of cost. */
export const unitOf = ({ counts }) => (counts === "cost" ? "cost" : "rows");

/** A number of rows, or of units of cost, in a sentence. */
export const inUnits = (api, value, text = count(value)) =>
  `${text} ${api.counts === "cost" ? "unit" : "row"}${text === "1" ? "" : "s"}${api.counts === "cost" ? " of cost" : ""}`;

/** A time and its unit, separate so that the unit can be smaller. */
export const ms = (value) => (value >= 10_000 ? [number(value / 1000), "s"] : [number(value), "ms"]);

export const msText = (value) => ms(value).join(" ");

/** A setting, exact. */
export const msExact = (value) => (value >= 10_000 ? `${count(value / 1000)} s` : `${count(value)} ms`);

export function percent(share) {
  return share > 0.99 && share < 1 ? "over 99 %" : `${number(100 * share)} %`;
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${number(value)} ${units[unit]}`;
}

export function duration(seconds) {
  const whole = Math.floor(seconds);
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

export const sum = (counts) => Object.values(counts).reduce((total, value) => total + value, 0);

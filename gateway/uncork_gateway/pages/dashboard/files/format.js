// Numbers and times as people read them.

const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

// A decaying rate never reaches 0 by itself.
const NOTHING = 0.00005;

/** Three significant digits, or all digits before the point. */
export function number(value) {
  if (Math.abs(value) < NOTHING) return "0";
  return Math.abs(value) >= 1000 ? WHOLE.format(value) : SHORT.format(value);
}

/** A number and its unit, separate so that the unit can be smaller. */
export function ms(value) {
  return value >= 10_000 ? [number(value / 1000), "s"] : [number(value), "ms"];
}

export const msText = (value) => ms(value).join(" ");

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

export const percent = (share) => `${number(100 * share)} %`;

export const counted = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;

export const sum = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);

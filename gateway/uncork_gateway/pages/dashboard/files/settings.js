// What the reader chooses: the time range of the charts, which is remembered, and the theme (see theme.js).

const DEFAULT_RANGE_S = "300";

/** Connect the controls; `changed` is called after a choice. Returns a function that returns the range in seconds. */
export function settings(page, changed) {
  new MutationObserver(changed).observe(page.documentElement, { attributeFilter: ["data-theme"] });

  const ranges = [...page.querySelectorAll("input[name=range]")];
  const remembered = recall("range") ?? DEFAULT_RANGE_S;
  (ranges.find(({ value }) => value === remembered) ?? ranges.find(({ value }) => value === DEFAULT_RANGE_S)).checked = true;
  for (const range of ranges) {
    range.addEventListener("change", () => {
      remember("range", range.value);
      changed();
    });
  }
  return () => Number(ranges.find(({ checked }) => checked).value);
}

// Storage may be blocked, or full.

function remember(name, value) {
  try {
    localStorage.setItem(`uncork.${name}`, value);
  } catch {
    // The choice holds until the page is closed.
  }
}

function recall(name) {
  try {
    return localStorage.getItem(`uncork.${name}`);
  } catch {
    return null;
  }
}

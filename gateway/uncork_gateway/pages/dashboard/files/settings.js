// What the reader chooses: the theme, and the time range of the charts. Both are remembered.

const DEFAULT_RANGE_S = "300";

/** Connect the controls; `changed` is called after a choice. Returns a function that returns the range in seconds. */
export function settings(page, changed) {
  const theme = page.querySelector("[data-f=theme]");
  theme.value = document.documentElement.dataset.theme;
  theme.addEventListener("change", () => {
    document.documentElement.dataset.theme = theme.value;
    remember("theme", theme.value);
    changed();
  });

  const ranges = [...page.querySelectorAll("input[name=range]")];
  const remembered = recall("range") ?? DEFAULT_RANGE_S;
  (ranges.find(({ value }) => value === remembered) ?? ranges[0]).checked = true;
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

// Applies the remembered theme before the page is drawn, and lets the reader choose another. Storage may be blocked.
"use strict";

(() => {
  const KEY = "uncork-theme";
  const THEMES = ["system", "light", "dark"];

  function remembered() {
    try {
      const theme = localStorage.getItem(KEY);
      return THEMES.includes(theme) ? theme : "system";
    } catch {
      return "system";
    }
  }

  function apply(theme) {
    document.documentElement.dataset.theme = theme;
  }

  apply(remembered());
  addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = remembered();
    choice.addEventListener("change", () => {
      apply(choice.value);
      try {
        localStorage.setItem(KEY, choice.value);
      } catch {}
    });
    // Another page of this server changed it.
    addEventListener("storage", (event) => {
      if (event.key !== KEY) return;
      choice.value = remembered();
      apply(choice.value);
    });
  });
})();

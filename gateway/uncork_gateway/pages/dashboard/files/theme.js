// Applies the remembered theme before the page is drawn. Storage may be blocked.
try {
  document.documentElement.dataset.theme = localStorage.getItem("uncork.theme") ?? "system";
} catch {
  document.documentElement.dataset.theme = "system";
}

// The server does not know its address behind a proxy; the browser does.
const base = new URL(".", location.href).href.replace(/\/$/, "");
for (const origin of document.querySelectorAll(".origin")) origin.textContent = base;

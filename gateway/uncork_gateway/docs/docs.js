// Shows openapi.json, which lies beside this page, with Swagger UI. Where API keys are wanted it asks for one
// and keeps it for as long as the page is open.
"use strict";

const RETRY_MS = 1000;
const KEY_SCHEMES = ["ApiKey", "Bearer"];
const form = document.getElementById("key");
const message = document.getElementById("message");

async function load(key) {
  let reply;
  try {
    reply = await fetch("openapi.json", { headers: key ? { "X-Api-Key": key } : {} });
  } catch {
    tell("The server does not answer.", key);
    return;
  }
  if (reply.status === 401) {
    form.hidden = false;
    message.textContent = key ? "The server does not know this key." : "";
    return;
  }
  if (!reply.ok) {
    const problem = await reply.json().catch(() => ({ detail: `status ${reply.status}` }));
    tell(`Not yet: ${problem.detail}.`, key);
    return;
  }
  show(await reply.json(), key);
}

// No document yet; there will be one when a worker has started.
function tell(text, key) {
  message.textContent = text;
  setTimeout(() => load(key), RETRY_MS);
}

function show(api, key) {
  form.hidden = true;
  message.textContent = "";
  document.title = `${api.info.title}: API`;
  // Behind a reverse proxy the apis may be below a path, as this page is.
  api.servers = [{ url: new URL(".", location).href.replace(/\/$/, "") }];
  const ui = SwaggerUIBundle({
    spec: readable(api),
    dom_id: "#api",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    tryItOutEnabled: true,
    validatorUrl: null,
    onComplete: () => key && KEY_SCHEMES.forEach((scheme) => ui.preauthorizeApiKey(scheme, key)),
  });
}

// What the packaged Swagger UI can read: OpenAPI 3.0, which has one type for a value, and says of numbers
// that a bound is exclusive. Only what is shown depends on it.
function readable(api) {
  return { ...api, openapi: "3.0.3" };
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  load(document.getElementById("key-text").value.trim());
});
load("");

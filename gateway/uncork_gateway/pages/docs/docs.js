// Shows openapi.json with Swagger UI. If the server requires an API key, the page asks for one and keeps it
// while it is open.
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
    tell("The server does not respond.", key);
    return;
  }
  if (reply.status === 401) {
    form.hidden = false;
    message.textContent = key ? "Unknown API key." : "";
    return;
  }
  if (!reply.ok) {
    const problem = await reply.json().catch(() => ({ detail: `status ${reply.status}` }));
    tell(`Not ready: ${problem.detail}.`, key);
    return;
  }
  show(await reply.json(), key);
}

// There is no document until a worker has started.
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

// The packaged Swagger UI reads OpenAPI 3.0, where a value has one type, and fills its forms only with a body's
// single example. This affects only the display.
function readable(api) {
  const { paths, components } = simpler(api);
  for (const { responses } of Object.values(paths).flatMap((path) => Object.values(path))) {
    for (const status of Object.keys(responses).filter((status) => status >= "400" && status < "600")) {
      // All have the same form, as the description says; copies would hide the differences.
      delete responses[status].content;
    }
  }
  return { ...api, openapi: "3.0.3", paths, components };
}

const VALUES = ["default", "enum", "example", "examples"];

function simpler(value, name) {
  if (value === null || typeof value !== "object" || VALUES.includes(name)) return value;
  if (Array.isArray(value)) return value.map((inner) => simpler(inner));
  const read = Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, simpler(inner, key)]));
  if (read.schema && read.examples) {
    read.example = Object.values(read.examples)[0].value;
    delete read.examples;
  }
  if (!Array.isArray(read.type)) return read;
  const { type, ...others } = read;
  const types = type.filter((one) => one !== "null");
  const one = types.length === 1 ? { type: types[0] } : { anyOf: types.map((type) => ({ type })) };
  return { ...others, ...one, nullable: type.includes("null") };
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  load(document.getElementById("key-text").value.trim());
});
load("");

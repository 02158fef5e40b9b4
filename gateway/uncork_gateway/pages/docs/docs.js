// Shows openapi.json with Swagger UI. If the server requires an API key, the page asks for one and keeps it
// while it is open.
"use strict";

const RETRY_MS = 1000;
const NO_VERSION = "unversioned";
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
  // A browser would request it without the key.
  document.getElementById("document").hidden = Boolean(key);
  message.textContent = "";
  document.title = `${api.info.title}: API`;
  // Behind a reverse proxy the apis may be below a path, as this page is.
  api.servers = [{ url: new URL(".", location).href.replace(/\/$/, "") }];
  const ui = SwaggerUIBundle({
    spec: readable(api),
    dom_id: "#api",
    deepLinking: true,
    defaultModelsExpandDepth: -1,
    displayRequestDuration: true,
    tryItOutEnabled: true,
    validatorUrl: null,
    plugins: [withCompactJson],
    onComplete: () => key && KEY_SCHEMES.forEach((scheme) => ui.preauthorizeApiKey(scheme, key)),
  });
}

// The packaged Swagger UI reads OpenAPI 3.0, where a value has one type, and fills its forms only with a body's
// single example. This affects only the display.
function readable(api) {
  for (const { responses } of Object.values(api.paths).flatMap((path) => Object.values(path))) {
    for (const [status, response] of Object.entries(responses)) {
      if (status === "default" || status >= "400") fold(response);
      else exemplify(response);
    }
  }
  const { info, paths, components } = simpler(api);
  if (info.version === NO_VERSION) info.version = "";
  return { ...api, openapi: "3.0.3", info, paths, components };
}

// Errors are many and alike: their examples open on demand.
function fold(response) {
  const examples = Object.values(response.content ?? {}).flatMap(({ examples = {} }) => Object.values(examples));
  delete response.content;
  if (!examples.length) return;
  const texts = examples.map(({ value }) => `<pre>${escaped(JSON.stringify(value))}</pre>`);
  const title = examples.length === 1 ? "Example" : "Examples";
  response.description += `\n\n<details><summary>${title}</summary>${texts.join("")}</details>`;
}

// Results have no schema. Without an example, Swagger UI would make up a value that no API returns.
function exemplify(response) {
  for (const content of Object.values(response.content)) {
    const [example] = Object.values(content.examples ?? {});
    delete content.schema;
    delete content.examples;
    if (!example) continue;
    content.example = example.value;
    const origin = example.summary ? ` Example: ${example.summary}.` : "";
    if (!response.description.endsWith(origin)) response.description += origin;
  }
}

function escaped(text) {
  return text.replace(/[&<>]/g, (character) => `&#${character.charCodeAt(0)};`);
}

// Swagger UI would give each number of an array a line.
function withCompactJson() {
  const wrap = (name) => (Original, { React }) => (props) =>
    React.createElement(Original, { ...props, [name]: compacted(props[name]) });
  return { wrapComponents: { RequestBodyEditor: wrap("defaultValue"), highlightCode: wrap("value") } };
}

function compacted(text) {
  try {
    const value = JSON.parse(text);
    return isPlain(value) ? text : laidOut(value);
  } catch {
    return text;
  }
}

function laidOut(value, indent = "") {
  if (isPlain(value)) return JSON.stringify(value);
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    if (value.every(isPlain)) return `[${value.map((one) => JSON.stringify(one)).join(", ")}]`;
    return `[\n${value.map((one) => inner + laidOut(one, inner)).join(",\n")}\n${indent}]`;
  }
  const members = Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${laidOut(one, inner)}`);
  return members.length ? `{\n${members.join(",\n")}\n${indent}}` : "{}";
}

function isPlain(value) {
  return value === null || typeof value !== "object";
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

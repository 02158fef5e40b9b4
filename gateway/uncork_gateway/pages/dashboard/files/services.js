// What the reader can choose from: the APIs, and the services that they belong to if there are several.

import { build, keep, put } from "./dom.js";
import { count, number, unitOf } from "./format.js";
import { CALM, STATES } from "./words.js";

// Names of services in one state that the summary lists.
const MOST_NAMED = 5;
// The order of the summary.
const TROUBLED = ["failing", "not_ready", "degraded", "starting"];

/** The address of an API on this page. Ids such as `digits/predict` stay readable. */
const address = ({ id }) => `#${encodeURIComponent(id).replaceAll("%2F", "/")}`;

/** The id of the API in the address of the page; empty if there is none. */
export function chosen() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

/** The service of an API, which is also that of a proxy's models. */
export const serviceOf = (api, { services }) => services.find(({ name }) => name === api.service);

export const workersOf = (service, { workers }) => workers.filter((worker) => worker.service === service.name);

export class ServicesView {
  #fields;

  constructor(fields) {
    this.#fields = fields;
  }

  /** `shown` is the API below; undefined if there is none. */
  show({ services, apis }, shown) {
    const [several, alone] = services.length > 1 ? [services, []] : [[], apis];
    this.#fields.services.hidden = !several.length;
    this.#fields.apis.hidden = alone.length < 2;
    showApis(this.#fields.apis, alone.length < 2 ? [] : alone, shown);
    keep(this.#fields.services, several, "section", (item, service) => {
      showService(item, service, apis.filter((api) => api.service === service.name), shown);
    });
  }
}

function showService(item, { name, state, sentence }, apis, shown) {
  build(item, "h2", "p", "div");
  const [title, text, links] = item.children;
  item.classList.toggle("chosen", shown?.service === name);
  build(title, "b", "span");
  const [label, pill] = title.children;
  put(label, name);
  pill.className = "pill";
  const [word, tone] = STATES[state];
  put(pill, word);
  pill.dataset.tone = tone;
  put(text, sentence);
  links.className = "apis";
  showApis(links, apis, shown);
}

function showApis(parent, apis, shown) {
  keep(parent, apis, "a", (link, api) => {
    build(link, "b", "small");
    link.href = address(api);
    if (api.id === shown.id) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    const isAdvised = api.state !== "ok" || api.advice.some(({ code }) => !CALM.has(code));
    link.dataset.tone = api.state === "failing" ? "bad" : isAdvised ? "warn" : "";
    link.title = api.state === "ok" ? "" : api.state;
    put(link.firstChild, api.name);
    put(link.lastChild, api.rate_rows === null ? "" : ` ${number(api.rate_rows)} ${unitOf(api)}/s`);
  });
}

/** The state as a whole. That of several services is in the list, in full. */
export function summary({ state, sentence, services }) {
  if (services.length < 2 || state === "draining") return sentence;
  const ready = services.filter((service) => !["starting", "not_ready"].includes(service.state));
  const troubled = TROUBLED.map((each) => [each, services.filter((service) => service.state === each)]);
  const parts = troubled.filter(([, some]) => some.length).map(([each, some]) => `${STATES[each][0]}: ${listed(some)}`);
  const all = `${ready.length === services.length ? "All" : `${count(ready.length)} of`} ${count(services.length)} services ready`;
  return `${[all, ...parts].join("; ")}.`;
}

function listed(services) {
  const names = services.slice(0, MOST_NAMED).map(({ name }) => name);
  const more = services.length - names.length;
  return `${names.join(", ")}${more ? ` and ${more} more` : ""}`;
}

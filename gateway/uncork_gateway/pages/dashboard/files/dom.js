// Changes to the page. Text is only ever set as text: names come from services and clients.

/** Set a text if it differs: unchanged text is not redrawn, and stays selected. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Give an element one child per item, and reuse its children. */
export function keep(parent, items, name, fill) {
  while (parent.childElementCount > items.length) parent.lastElementChild.remove();
  while (parent.childElementCount < items.length) parent.append(document.createElement(name));
  items.forEach((item, index) => fill(parent.children[index], item));
}

/** Give an element children with these names, once. */
export function build(element, ...names) {
  if (!element.childElementCount) element.append(...names.map((name) => document.createElement(name)));
}

/** The parts of the page that change, by the name in `data-f`. */
export class Fields {
  constructor(page) {
    for (const element of page.querySelectorAll("[data-f]")) this[element.dataset.f] = element;
  }

  text(name, text) {
    put(this[name], text);
  }

  tone(name, text, tone) {
    put(this[name], text);
    this[name].dataset.tone = tone;
  }

  /** Show a text, or hide its element if there is none. */
  optional(name, text) {
    this[name].hidden = !text;
    put(this[name], text || "");
  }
}

// Makes elements. All that comes from the server becomes text here and never markup, so a name or a
// line of a log such as <script> is shown as it is.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** An element of HTML with its attributes and children; strings become text. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same of SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

const shown = new Map();

/** Put what `make()` returns into the element, if `data` is not what it shows already. */
export function show(id, data, make) {
  const text = JSON.stringify(data);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  const focused = document.activeElement?.id; // what is focused stays so, as far as it is there
  byId(id).replaceChildren(...[make()].flat());
  if (focused && document.activeElement?.id !== focused) byId(focused)?.focus({ preventScroll: true });
}

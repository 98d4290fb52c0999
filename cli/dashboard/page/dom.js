// Makes the elements of the page. Whatever comes from the server becomes text here and never markup,
// so that a name or a log line such as <script> is shown as it is and does no harm.

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

/** Make an HTML element with its attributes and children. Strings become text. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element in the same way. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

const shown = new Map();

/** Put what `make()` returns into the element with this id, unless it already shows this `data`. */
export function show(id, data, make) {
  const text = JSON.stringify(data);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  const focused = document.activeElement?.id; // gets the focus back if it is there again
  byId(id).replaceChildren(...[make()].flat());
  if (focused && document.activeElement?.id !== focused) byId(focused)?.focus({ preventScroll: true });
}

// Draws lines over steps as SVG, as wide as there is room. The pointer and the arrow keys select a
// step, whose values are then shown.

import { h, s } from "./dom.js";
import { whole } from "./format.js";

const HEIGHT = 232;
const EDGE = { top: 10, right: 12, bottom: 26, left: 52 };

/** Return about `count` round numbers from `low` to `high`, for the ticks of an axis. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((times) => times * power >= rough) * power;
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

/** Return the point of a line whose step is nearest to `step`; `points` are in the order of steps. */
export function nearest(points, step) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < step) low = middle;
    else high = middle;
  }
  return step - points[low][0] <= points[high][0] - step ? points[low] : points[high];
}

function range(lines, fromZero) {
  const all = lines.flatMap((line) => line.points);
  const values = all.map(([, value]) => value);
  const steps = all.map(([step]) => step);
  const of = (list, pick) => list.reduce((a, b) => (pick(a, b) ? a : b));
  const less = (a, b) => a <= b;
  const more = (a, b) => a >= b;
  const [low, high] = [fromZero ? 0 : of(values, less), of(values, more)];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return {
    x: [of(steps, less), Math.max(of(steps, more), of(steps, less) + 1)],
    y: [fromZero ? 0 : low - room, high + room],
  };
}

function legend(lines) {
  return h("ul", { class: "legend" }, lines.map((line) =>
    h("li", {},
      s("svg", { width: 26, height: 10, "aria-hidden": "true" },
        s("line", { x1: 1, y1: 5, x2: 25, y2: 5, class: `line ${line.style}` })),
      line.name)));
}

/**
 * Return a figure with a chart.
 *
 * Each of `lines` has `name`, `style` (a class of page.css), `points` ([step, value] in the order of
 * steps) and `mark` (whether single points are drawn). `format` turns a value into text.
 */
export function chart({ id, title, lines, format, width, fromZero = false }) {
  const drawn = lines.filter((line) => line.points.length);
  const { x, y } = range(drawn, fromZero);
  const [left, right] = [EDGE.left, width - EDGE.right];
  const [top, bottom] = [EDGE.top, HEIGHT - EDGE.bottom];
  const at = (step) => left + ((step - x[0]) / (x[1] - x[0])) * (right - left);
  const up = (value) => bottom - ((value - y[0]) / (y[1] - y[0])) * (bottom - top);
  const path = (points) =>
    points.map(([a, b], n) => `${n ? "L" : "M"}${at(a).toFixed(1)} ${up(b).toFixed(1)}`).join("");

  const grid = ticks(y[0], y[1], 4).map((value) => [
    s("line", { x1: left, x2: right, y1: up(value), y2: up(value), class: "grid" }),
    s("text", { x: left - 8, y: up(value) + 4, class: "tick end" }, axisText(value)),
  ]);
  const steps = ticks(x[0], x[1], width < 420 ? 4 : 6).filter(Number.isInteger).map((step) =>
    s("text", { x: at(step), y: HEIGHT - 6, class: "tick middle" }, axisText(step)));
  const paths = drawn.map((line) => [
    s("path", { d: path(line.points), class: `line ${line.style}` }),
    line.mark && line.points.length <= 60 && line.points.map(([a, b]) =>
      s("circle", { cx: at(a), cy: up(b), r: 3, class: `dot ${line.style}` })),
  ]);
  const cross = s("g", { class: "cross", visibility: "hidden" });
  const reading = h("output", { class: "reading" });
  const longest = drawn.reduce((a, b) => (a.points.length >= b.points.length ? a : b)).points;
  const words = (step) => drawn.map((line) => {
    const [, value] = nearest(line.points, step);
    return `${line.name} ${format(value)}`;
  }).join(" · ");

  let index = longest.length - 1;
  const rest = () => {
    const step = longest.at(-1)[0];
    cross.setAttribute("visibility", "hidden");
    reading.textContent = `Step ${whole(step)}: ${words(step)}`;
  };
  const point = (step) => {
    index = longest.indexOf(nearest(longest, step));
    const [found] = longest[index];
    cross.replaceChildren(
      s("line", { x1: at(found), x2: at(found), y1: top, y2: bottom }),
      ...drawn.map((line) => nearest(line.points, found)).map(([a, b]) =>
        s("circle", { cx: at(a), cy: up(b), r: 3.5 })));
    cross.setAttribute("visibility", "visible");
    reading.textContent = `Step ${whole(found)}: ${words(found)}`;
  };
  const keys = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    point(longest[Math.min(longest.length - 1, Math.max(0, index + by))][0]);
  };
  const last = longest.at(-1)[0];
  const svg = s("svg",
    {
      id, width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", tabindex: 0,
      "aria-label": `${title} over steps ${whole(x[0])} to ${whole(last)}. At the end: ${words(last)}. `
        + "The arrow keys read single steps.",
      onkeydown: keys, onblur: rest, onpointerleave: rest,
      onpointermove: (event) => {
        const part = (event.offsetX - left) / (right - left);
        point(x[0] + part * (x[1] - x[0]));
      },
    },
    grid.flat(), steps, paths.flat(2), cross);
  rest();
  return h("figure", {}, h("figcaption", {}, h("h4", {}, title), legend(drawn)), svg, reading);
}

function axisText(value) {
  if (Math.abs(value) >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (Math.abs(value) >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return value.toLocaleString("en", { maximumFractionDigits: 3 });
}

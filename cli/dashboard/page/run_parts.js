// Makes the parts of the page about one run: curves, goodput, ranks, sample and log lines.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { NOT_KNOWN, clock, day, loss, seconds, share, span, whole } from "./format.js";

const empty = (text) => h("p", { class: "empty" }, text);

/** Return for each point the median of its neighbours and itself, which shows the course of noisy values. */
export function medians(points, beside = 12) {
  if (points.length < 4 * beside) return [];
  return points.map(([step], n) => {
    const near = points.slice(Math.max(0, n - beside), n + beside + 1).map(([, value]) => value);
    return [step, near.sort((a, b) => a - b)[near.length >> 1]];
  });
}

/** Make the charts. `other` has the name and the curves of a run to compare with, or is null. */
export function curves(content, other, width) {
  if (!content.loss.length && !content.val_loss.length) {
    return empty("This run has measured nothing yet. Its first numbers come after its first step.");
  }
  const wide = width >= 900;
  const room = (part) => Math.max(240, Math.floor(wide ? (width - 32) * part : width));
  const lines = (name, title, style, mark) => [
    { name: title, style, mark, points: content[name] },
    ...(other?.content ? [{
      name: `${title} of ${other.name}`, style: `${style} other`, mark, points: other.content[name],
    }] : []),
  ];
  const made = [chart({
    id: "loss-chart", title: "Loss, nats per token", format: loss, width: room(0.6),
    lines: [...lines("loss", "training", "thin", false), ...lines("val_loss", "validation", "main", true)],
  })];
  if (content.tokens_per_second.length) {
    const speed = lines("tokens_per_second", "all ranks", "thin", false);
    const middle = medians(content.tokens_per_second);
    made.push(chart({
      id: "speed-chart", title: "Tokens per second", format: whole, width: room(0.4), fromZero: true,
      lines: [...speed, { name: "median around it", style: "main", points: middle }],
    }));
  }
  return made;
}

export function goodput(content) {
  const wall = content.wall_seconds;
  if (!wall) return empty("No time is measured yet: the run has not begun.");
  const part = (kind) => kind.seconds / wall;
  const bar = (value) => {
    const inner = h("span", {});
    inner.style.width = `${100 * value}%`;
    return inner;
  };
  const pieces = content.kinds.filter((kind) => kind.seconds > 0);
  const lost = `${whole(content.lost_steps)} ${content.lost_steps === 1 ? "step was" : "steps were"} made again`;
  const restarts = `${whole(content.restarts)} ${content.restarts === 1 ? "restart" : "restarts"}`;
  const damaged = content.damaged_lines
    ? ` ${whole(content.damaged_lines)} lines of the event file are damaged and left out.` : "";
  return [
    h("p", { class: "big" }, h("b", {}, share(content.goodput)), " of ", seconds(wall),
      " went into steps that count."),
    h("div", { class: "stack", "aria-hidden": "true" }, pieces.map((kind) => {
      const piece = bar(part(kind));
      piece.className = kind.kind === "productive" ? "yes" : "no";
      piece.title = `${kind.kind} ${share(part(kind))}`;
      return piece;
    })),
    h("table", { class: "kinds" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Kind"), h("th", { scope: "col", class: "number" }, "Time"),
        h("th", { scope: "col", class: "number" }, "Share"), h("th", { scope: "col", "aria-hidden": "true" }, ""))),
      h("tbody", {}, content.kinds.map((kind) => h("tr", { class: kind.seconds ? "" : "none" },
        h("th", { scope: "row" }, kind.kind, " ", h("small", {}, kind.what)),
        h("td", { class: "number" }, seconds(kind.seconds)),
        h("td", { class: "number" }, share(part(kind))),
        h("td", { class: "meter", "aria-hidden": "true" }, bar(part(kind))))))),
    h("p", { class: "quiet" },
      `${restarts}, ${lost}; ${content.gpu_hours.toFixed(3)} GPU-hours if each of the ${whole(content.gpus)} `
      + `ranks has a GPU.${damaged}`),
  ];
}

/** Make the table of ranks. `heard` has by rank the age of its last line, in seconds. */
export function ranks(rows, heard) {
  if (!rows.length) return empty("The run has no pods now.");
  const head = ["Rank", "Pod", "State", "Machine", "Tokens/s", "Restarts", "Age", "Last line"];
  return h("table", { role: "table", class: "cards" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head.map((name) =>
      h("th", { role: "columnheader", scope: "col", class: /Rank|Tokens|Restarts|Age|Last/.test(name) ? "number" : "" }, name)))),
    h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" },
      h("th", { role: "rowheader", scope: "row", class: "number" }, h("span", { class: "only-small" }, "Rank "), whole(row.rank)),
      h("td", { role: "cell", "data-name": "Pod" }, row.pod),
      h("td", { role: "cell", class: row.problem || row.slow ? "" : "state", "data-name": "State" },
        h("span", { "aria-hidden": "true" }, row.problem ? "▲ " : row.is_ready ? "● " : "◌ "), row.state,
        row.problem && h("small", {}, row.problem),
        row.slow && h("small", {}, h("span", { "aria-hidden": "true" }, "▲ "), `takes ${row.slow}`)),
      h("td", { role: "cell", "data-name": "Machine" }, row.machine || NOT_KNOWN),
      h("td", { role: "cell", class: "number", "data-name": "Tokens/s" }, whole(row.tokens_per_second)),
      h("td", { role: "cell", class: "number", "data-name": "Restarts" }, whole(row.restarts)),
      h("td", { role: "cell", class: "number", "data-name": "Age" }, span(row.age_seconds)),
      h("td", { role: "cell", class: "number", "data-name": "Last line" },
        row.rank in heard ? `${span(heard[row.rank])} ago` : NOT_KNOWN)))));
}

export function sample(content) {
  return h("pre", { tabindex: 0, "aria-label": "Sample" }, content.text || "The text is empty.");
}

/** Make the list of lines that have this rank (empty: any rank) and contain these words. */
export function logs(content, rank, words) {
  const notes = content.notes.map((note) => h("p", { class: "note" }, note));
  const wanted = content.lines.filter((line) =>
    (!rank || String(line.rank) === rank) && line.text.toLowerCase().includes(words.toLowerCase()));
  if (!content.lines.length) return [...notes, empty("There are no lines yet: no pod of this run has printed one.")];
  if (!wanted.length) return [...notes, empty(`None of the last ${whole(content.lines.length)} lines is like that.`)];
  const lines = wanted.map((line) => h("li", {},
    h("time", { title: day(line.at) }, clock(line.at)),
    h("span", { class: "who" }, line.rank == null ? `node ${line.node}` : `rank ${line.rank}`),
    h("span", { class: "text" }, line.text, line.meaning && h("em", {}, `→ ${line.meaning}`))));
  return [
    ...notes,
    h("ol", { id: "lines", class: "lines", tabindex: 0, "aria-label": "Lines, the newest last" }, lines),
    h("p", { class: "quiet" }, `${whole(wanted.length)} of the last ${whole(content.lines.length)} lines. `,
      h("code", {}, "./disttrain logs"), " shows all of them."),
  ];
}

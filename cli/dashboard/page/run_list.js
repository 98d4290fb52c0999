// The list of runs, and the head of the run that is chosen.

import { h } from "./dom.js";
import { NOT_KNOWN, loss, sentence, size, span, whole } from "./format.js";

// The sign beside the word of each state, so that states can be told apart without colour.
const SIGNS = {
  training: "●", saving: "●", finished: "✓", stopped: "■", suspended: "■", kept: "○",
  failed: "▲", failing: "▲", stalled: "▲", gone: "▲", unknown: "?",
};

export const GOOD = ["training", "saving"];

export function state(run) {
  const kind = run.needs_attention ? "bad" : GOOD.includes(run.state) ? "good" : "calm";
  return h("span", { class: `state ${kind}` },
    h("span", { "aria-hidden": "true" }, SIGNS[run.state] ?? "◌"), ` ${run.state}`);
}

function step(run) {
  if (run.step == null) return NOT_KNOWN;
  return run.of ? `${whole(run.step)} / ${whole(run.of)}` : whole(run.step);
}

function saved(run) {
  if (!run.saved_step) return NOT_KNOWN;
  const age = run.saved_age_seconds;
  return `step ${whole(run.saved_step)}${age == null ? "" : `, ${span(age)} ago`}`;
}

const COLUMNS = [
  ["Step", step, "number"],
  ["Loss", (run) => loss(run.loss), "number"],
  ["Val loss", (run) => loss(run.val_loss), "number"],
  ["Tokens/s", (run) => whole(run.tokens_per_second), "number"],
  ["ETA", (run) => run.eta || NOT_KNOWN, "number"],
  ["Saved", saved, ""],
  ["Size", (run) => size(run.size_bytes), "number"],
];

/** Make the table of all runs. On pages below 700 pixels, page.css turns each row into a card. */
export function runTable(runs, chosen) {
  const head = ["Run", "State", ...COLUMNS.map(([name]) => name)];
  const classes = ["", "", ...COLUMNS.map(([, , kind]) => kind)];
  return h("table", { role: "table", class: "runs" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head.map((name, n) =>
      h("th", { role: "columnheader", scope: "col", class: classes[n] }, name)))),
    h("tbody", { role: "rowgroup" }, runs.map((run) =>
      h("tr", { role: "row", class: run.id === chosen ? "chosen" : "" },
        h("th", { role: "rowheader", scope: "row" },
          h("a", {
            id: `to ${run.id}`, href: `#run=${encodeURIComponent(run.id)}`,
            "aria-current": run.id === chosen ? "true" : null,
          }, run.name)),
        h("td", { role: "cell", "data-name": "State" }, state(run)),
        COLUMNS.map(([name, cell, kind]) =>
          h("td", { role: "cell", class: kind, "data-name": name }, cell(run)))))));
}

export function detail(run) {
  const parts = [];
  if (run.detail) {
    const since = run.since_seconds == null ? "" : ` (for ${span(run.since_seconds)})`;
    parts.push(sentence(`${run.detail}${since}`));
  }
  if (run.stack) parts.push(`Stack ${run.stack}, ${run.workload}.`);
  return parts.join(" ");
}

/**
 * Return a sentence about how the ranks reach each other, and whether it is a warning.
 *
 * `found` is what the run's events tell of the transport, or nothing.
 */
export function transport(run, found) {
  let warning = run.transport_warning;
  if (!warning && found?.as_asked === false && !run.is_over) {
    warning = `${found.words}, and the network profile asks for ${found.asked}`;
  }
  if (warning) return [sentence(`transport not as asked: ${warning}`), true];
  if (!found) return ["", false];
  const asked = found.as_asked ? ", as asked" : "";
  return [sentence(`transport between the ranks: ${found.words}${asked}`), false];
}

function progress(run) {
  if (run.step == null || !run.of) return null;
  return h("progress", { max: run.of, value: run.step, "aria-label": "Steps done" });
}

export function numbers(run) {
  const lowest = run.lowest_val_loss_step == null
    ? "" : `lowest ${loss(run.lowest_val_loss)} at step ${whole(run.lowest_val_loss_step)}`;
  const items = [
    ["Step", whole(run.step), run.of ? `of ${whole(run.of)}` : "", progress(run)],
    ["Loss", loss(run.loss), "nats per token"],
    ["Validation loss", loss(run.val_loss), lowest],
    ["Tokens per second", whole(run.tokens_per_second), run.mfu && run.mfu !== "n/a" ? `MFU ${run.mfu}` : ""],
    ["Time left", run.eta || NOT_KNOWN, ""],
    ["Checkpoint", run.saved_step ? whole(run.saved_step) : NOT_KNOWN,
      run.saved_age_seconds == null ? "" : `${span(run.saved_age_seconds)} ago`],
  ];
  return items.map(([name, value, more, extra]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), " ", h("small", {}, more)),
      extra && h("dd", {}, extra)));
}

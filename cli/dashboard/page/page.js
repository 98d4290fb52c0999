// Asks the server every two seconds while the page is visible, and shows the answers.

import { byId, h, show } from "./dom.js";
import { clock, sentence, span } from "./format.js";
import { GOOD, detail, numbers, runTable, state, transport } from "./run_list.js";
import * as parts from "./run_parts.js";

const PAUSE_MILLISECONDS = 2000;
const PARTS = ["ranks", "curves", "goodput", "logs"];
const known = { overview: null, at: 0, run: "", of: {}, other: null };
const wishes = { sampleOf: "", compare: "" };
let width = 0;
let timer = 0;

/** No answer, or one that is of no use: the server has ended, or is too busy. */
class NoAnswer extends Error {}

async function ask(part, run) {
  try {
    return await answer(part, run);
  } catch (error) {
    throw new NoAnswer(part, { cause: error });
  }
}

async function answer(part, run) {
  const response = await fetch(`api/${part}?run=${encodeURIComponent(run)}`,
    { headers: { "X-Disttrain-Page": "1" }, signal: AbortSignal.timeout(15000) });
  if (response.ok) return response.json();
  if (response.status !== 404) throw new Error(await response.text());
  return { content: null, age_seconds: null, is_querying: false, problem: await response.text() };
}

function fromAddress() {
  const match = /^#run=(.*)$/.exec(location.hash);
  try {
    return match ? decodeURIComponent(match[1]) : "";
  } catch {
    return ""; // the address has an escape that is not complete
  }
}

/**
 * Return the run to show: the one in the address, or else the one that was shown before, or else one
 * that needs attention or trains. Return undefined while the run in the address may still be found.
 */
function choose(runs) {
  const wanted = fromAddress() || known.run;
  const found = runs.find((run) => run.id === wanted);
  if (!found && fromAddress() && !isSeen(known.overview.volume)) return undefined; // the volume may have it
  return found ?? runs.find((run) => run.needs_attention)
    ?? runs.find((run) => GOOD.includes(run.state)) ?? runs[0];
}

function isSeen(view) {
  return view.age_seconds != null || Boolean(view.problem);
}

async function poll() {
  clearTimeout(timer);
  try {
    if (!document.hidden) await refresh();
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error; // a fault of this page: the console shows it
    away();
  } finally {
    clearTimeout(timer); // a click may have begun another round meanwhile
    timer = setTimeout(poll, PAUSE_MILLISECONDS);
  }
}

async function refresh() {
  known.overview = await ask("overview", "");
  const run = choose(known.overview.runs);
  if (run?.id !== known.run) change(run?.id ?? "");
  if (run) await askRun(run);
  known.at = Date.now();
  byId("away").hidden = true;
  render();
}

function change(id) {
  Object.assign(known, { run: id, of: {}, other: null });
  wishes.sampleOf = "";
}

async function askRun(run) {
  const wanted = [...PARTS, ...(wishes.sampleOf === run.id ? ["sample"] : [])];
  const answers = await Promise.all(wanted.map((part) => ask(part, run.id)));
  const other = known.overview.runs.find((each) => each.id === wishes.compare && each !== run);
  const curves = other && (await ask("curves", other.id));
  if (known.run !== run.id) return; // the user has chosen another run meanwhile
  wanted.forEach((part, n) => { known.of[part] = { ...answers[n], at: Date.now() }; });
  if (known.of.sample && !known.of.sample.is_querying) wishes.sampleOf = ""; // the next sample needs a click
  known.other = other ? { name: other.name, content: curves.content } : null;
}

function away() {
  const box = byId("away");
  const since = known.at ? ` Below is what was seen at ${clock(known.at / 1000)}.` : "";
  box.textContent = `./disttrain dashboard does not answer: it has ended, or this machine is busy.${since}`;
  box.hidden = false;
}

function age(view) {
  if (!view) return ["Looking.", false];
  const old = view.age_seconds == null ? null : view.age_seconds + (Date.now() - (view.at ?? known.at)) / 1000;
  if (view.problem && old == null) return [sentence(`not seen: ${view.problem}`), true];
  if (view.problem) return [`${sentence(`the last query failed: ${view.problem}`)} This was seen ${span(old)} ago.`, true];
  if (old == null) return ["Looking.", false];
  return [`seen ${span(old)} ago`, false];
}

function showAge(id, view) {
  const [text, isProblem] = age(view);
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
  element.classList.toggle("problem", isProblem);
}

function showAges() {
  const { overview, of } = known;
  if (!overview) return;
  showAge("cluster-age", overview.cluster);
  showAge("volume-age", overview.volume);
  for (const part of PARTS) showAge(`${part}-age`, of[part]);
  if (of.sample && !of.sample.is_querying) showAge("sample-age", of.sample);
  else byId("sample-age").textContent = wishes.sampleOf ? "The trainer is writing; this takes a minute or so." : "";
}

function render() {
  const { overview } = known;
  byId("platform").textContent = overview.platform;
  const wanted = fromAddress();
  const isLost = wanted && isSeen(overview.volume) && !overview.runs.some((each) => each.id === wanted);
  byId("unseen").textContent = [
    overview.unseen && sentence(`not seen: ${overview.unseen}`),
    isLost && `The run of this address (${wanted}) is not there.`,
  ].filter(Boolean).join(" ");
  byId("unseen").hidden = !byId("unseen").textContent;
  const run = overview.runs.find((each) => each.id === known.run);
  show("runs", [overview.runs, known.run, noRuns()], () =>
    overview.runs.length ? runTable(overview.runs, known.run) : h("p", { class: "empty" }, noRuns()));
  byId("run").hidden = !run;
  if (run) renderRun(run);
  showAges();
}

function noRuns() {
  const { cluster, volume } = known.overview;
  if (cluster.age_seconds == null) return cluster.problem ? "The cluster was not seen, so no run is shown." : "Looking for runs.";
  if (volume.age_seconds == null) {
    return `No stack has a run now. ${volume.problem ? "The volume was not seen." : "Looking at the volume."}`;
  }
  return "There are no runs yet. `pulumi up` starts the first one.";
}

function renderRun(run) {
  byId("run-title").textContent = run.name;
  document.title = `${run.name}: ${run.state} · disttrain`;
  show("run-state", [run.state, run.needs_attention], () => state(run));
  byId("run-detail").textContent = detail(run);
  renderTransport(run);
  show("numbers", [run], () => numbers(run));
  renderCompare(run);
  const { of } = known;
  width = byId("curves").clientWidth;
  renderPart("curves", [of.curves?.content, known.other, width], (content) => parts.curves(content, known.other, width));
  renderPart("goodput", [of.goodput?.content], parts.goodput);
  const heard = lastLines();
  renderPart("ranks", [of.ranks?.content, heard], (content) => parts.ranks(content, heard));
  renderPart("sample", [of.sample?.content], parts.sample);
  byId("write").disabled = wishes.sampleOf === run.id;
  renderLogs();
}

function renderTransport(run) {
  const [text, isProblem] = transport(run, known.of.goodput?.content?.transport);
  const element = byId("transport");
  element.textContent = text;
  element.hidden = !text;
  element.classList.toggle("problem", isProblem);
}

function renderPart(part, data, make) {
  const content = known.of[part]?.content;
  show(part, [known.run, ...data], () => (content ? make(content) : []));
}

function renderCompare(run) {
  const others = known.overview.runs.filter((each) => each.id !== run.id);
  byId("compare-label").hidden = !others.length;
  show("compare", [run.id, others.map((each) => [each.id, each.name])], () => [
    h("option", { value: "" }, "no other run"),
    ...others.map((each) => h("option", { value: each.id, selected: each.id === wishes.compare }, each.name)),
  ]);
}

/** Return by rank how many seconds ago its last line came, as far as the newest lines show it. */
function lastLines() {
  const lines = known.of.logs?.content?.lines ?? [];
  const found = {};
  for (const line of lines) if (line.rank != null) found[line.rank] = line.at;
  return Object.fromEntries(Object.entries(found).map(([rank, at]) => [rank, Math.max(0, Math.round(Date.now() / 1000 - at))]));
}

function renderLogs() {
  const content = known.of.logs?.content;
  const chosen = byId("rank").value;
  const inLines = (content?.lines ?? []).map((line) => line.rank).filter((rank) => rank != null);
  const inPods = (known.of.ranks?.content ?? []).map((row) => row.rank);
  const all = [...new Set([...inLines, ...inPods])].sort((a, b) => a - b);
  show("rank", [known.run, all], () => [
    h("option", { value: "" }, "all"),
    ...all.map((rank) => h("option", { value: rank, selected: String(rank) === chosen }, String(rank))),
  ]);
  const [rank, words] = [byId("rank").value, byId("words").value];
  const before = byId("lines");
  const position = before?.scrollTop;
  const atEnd = !before || before.scrollHeight - before.clientHeight - before.scrollTop < 8;
  renderPart("logs", [content, rank, words], (given) => parts.logs(given, rank, words));
  const after = byId("lines");
  if (after && after !== before) after.scrollTop = atEnd ? after.scrollHeight : position;
}

byId("write").addEventListener("click", () => { wishes.sampleOf = known.run; poll(); });
byId("compare").addEventListener("change", (event) => { wishes.compare = event.target.value; poll(); });
byId("rank").addEventListener("change", renderLogs);
byId("words").addEventListener("input", renderLogs);
addEventListener("hashchange", poll);
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
new ResizeObserver(() => {
  if (known.overview && known.run && byId("curves").clientWidth !== width) render();
}).observe(byId("run"));
setInterval(showAges, 1000);
poll();

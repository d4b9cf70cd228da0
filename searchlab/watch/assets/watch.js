"use strict";
// Polls the state and draws the rows that have changed. Everything from the logs is inserted as text.

const AGAIN = 700; // milliseconds
const STATUSES = ["running", "done", "waiting", "stopped", "damaged"];
const MEANING = {
  running: "a process is writing the log",
  done: "the budget is spent, or the policy has nothing more to propose",
  waiting: "the run has no log yet",
  stopped: "no process is writing the log; searchlab run resumes it",
  damaged: "the log cannot be read; see searchlab log check",
};

const rows = new Map(); // by log
const groups = new Map(); // by workload and space
let version = 0, since = 0, shown = "all";

const byId = (id) => document.getElementById(id);

function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== "") element.textContent = text;
  return element;
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const amount = (value) => value >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(4);
const best = (row) => row.best === null ? "none yet" : `${amount(row.best)} ${row.unit}`;
const trials = (row) => row.wanted === null ? `${row.trials}` : `${row.trials} / ${row.wanted}`;

function span(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} days`;
}

const ago = (row) => row.trials ? `${span(Math.max(0, Date.now() / 1000 - row.updated))} ago` : "";

function bar(share) {
  const outer = make("span", "bar");
  outer.append(make("i"));
  outer.firstChild.style.width = `${100 * share}%`;
  return outer;
}

function curve(row, top) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "curve");
  svg.setAttribute("viewBox", "0 0 100 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `best so far over trials, ends at ${best(row)}`);
  if (!row.steps.length) return svg;
  const end = Math.max(1, row.wanted || row.trials);
  let d = "";
  for (const [index, value] of row.steps) {
    const x = (100 * index / end).toFixed(2), y = (23 - 22 * value / top).toFixed(2);
    d += d ? `H${x}V${y}` : `M${x} ${y}`;
  }
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `${d}H${(100 * row.trials / end).toFixed(2)}`);
  svg.append(path);
  return svg;
}

const COLUMNS = [["strategy", ""], ["seed", "number"], ["state", ""], ["trials", "number"], ["best so far", "number"],
  ["of the best", "number wide"], ["failed", "number wide"], ["last trial", "number wide"], ["best over trials", "wide"]];

function newGroup(row) {
  const element = make("details");
  element.open = true;
  const summary = make("summary"), head = make("h2"), line = make("p");
  summary.append(head, line);
  const scroll = make("div", "scroll"), table = make("table"), body = make("tbody"), columns = make("tr");
  for (const [name, className] of COLUMNS) columns.append(make("th", className, name));
  const top = make("thead");
  top.append(columns);
  table.append(top, body);
  scroll.append(table);
  element.append(summary, scroll);
  set(head, row.workload ? `${row.workload} in ${row.space}` : "logs without a header yet");
  byId("groups").append(element);
  return { element, line, body, rows: new Map(), top: 0, changed: false };
}

function draw(entry, top) {
  const row = entry.row;
  const cell = (className, ...content) => {
    const made = make("td", className);
    made.append(...content);
    return made;
  };
  const status = make("span", `status ${row.status}`, row.status);
  status.title = MEANING[row.status];
  const share = row.share === null ? [] : [bar(row.share)];
  if (share.length) share[0].classList.add("wide");
  const name = cell("name", row.strategy);
  name.title = row.log;
  if (row.problem) name.append(make("small", "", row.problem));
  entry.ago = cell("number wide", ago(row));
  entry.element.replaceChildren(
    name, cell("number", `${row.seed}`), cell("", status), cell("number", trials(row), ...share),
    cell(row.best !== null && row.best === top ? "number top" : "number", best(row)),
    cell("number wide", row.best === null ? "" : `${(100 * row.best / top).toFixed(1)} %`),
    cell("number wide", `${row.failed}`), entry.ago, cell("wide", curve(row, top)),
  );
  entry.element.hidden = shown !== "all" && row.status !== shown;
}

function order(group) {
  const entries = [...group.rows.values()];
  const first = new Map(); // the place of each strategy: that of its first run
  for (const { row } of entries) first.set(row.strategy, Math.min(row.number, first.get(row.strategy) ?? Infinity));
  entries.sort((a, b) => first.get(a.row.strategy) - first.get(b.row.strategy) || a.row.number - b.row.number);
  group.body.replaceChildren(...entries.map((entry) => entry.element));
}

function take(state) {
  if (state.version !== version) {
    rows.clear();
    groups.clear();
    byId("groups").replaceChildren();
  }
  version = state.version;
  since = state.look;
  const changed = new Set(), grown = new Set();
  for (const row of state.rows) {
    const key = `${row.workload}\n${row.space}`;
    const old = rows.get(row.log);
    if (old && old.key !== key) { // its header has been written
      old.group.rows.delete(row.log);
      old.element.remove();
      rows.delete(row.log);
    }
    if (!groups.has(key)) groups.set(key, newGroup(row));
    const group = groups.get(key);
    let entry = group.rows.get(row.log);
    if (!entry) {
      entry = { element: make("tr"), key, group };
      group.rows.set(row.log, entry);
      rows.set(row.log, entry);
      grown.add(group);
    }
    entry.row = row;
    changed.add(entry);
  }
  for (const group of groups.values()) {
    group.element.hidden = !group.rows.size;
    const all = [...group.rows.values()].map((entry) => entry.row);
    const top = Math.max(0, ...all.map((row) => row.best ?? 0));
    const redraw = top !== group.top;
    group.top = top;
    for (const entry of group.rows.values()) if (redraw || changed.has(entry)) draw(entry, top);
    if (grown.has(group)) order(group);
    const done = all.filter((row) => row.status === "done").length;
    const leaders = all.filter((row) => row.best !== null && row.best === top), leader = leaders[0];
    const others = leaders.length > 1 ? ` and ${leaders.length - 1} more` : "";
    const by = leader ? `; best so far ${best(leader)}, by ${leader.strategy}, seed ${leader.seed}${others}` : "";
    set(group.line, `${done} of ${all.length} done${by}`);
  }
  drawRunning();
}

function drawRunning() {
  const running = [...rows.values()].map((entry) => entry.row).filter((row) => row.status === "running");
  byId("now").hidden = !running.length;
  byId("running").replaceChildren(...running.slice(0, 16).map((row) => {
    const line = make("div", "run"), name = make("div", "", `${row.strategy}, seed ${row.seed}`);
    name.append(make("small", "", row.workload ? `${row.workload} in ${row.space}` : row.log));
    const number = make("div", "best", best(row));
    number.append(make("small", "", `trial ${trials(row)}`));
    line.append(name, row.share === null ? make("span") : bar(row.share), number);
    return line;
  }));
  if (running.length > 16) byId("running").append(make("small", "", `and ${running.length - 16} more`));
}

function drawHead(state) {
  document.title = state.share === null ? state.title : `${Math.floor(100 * state.share)} % of ${state.title}`;
  document.body.classList.remove("gone");
  set(byId("title"), state.title);
  set(byId("says"), state.says);
  const left = state.left === null ? "" : `${state.at_most ? "at most" : "about"} ${span(state.left)} left`;
  const share = state.share === null ? "" : `${Math.floor(100 * state.share)} % of the budget is spent`;
  set(byId("left"), [share, left].filter(Boolean).join(", "));
  const whole = byId("whole");
  whole.hidden = state.share === null;
  whole.setAttribute("aria-valuenow", Math.floor(100 * (state.share ?? 0)));
  whole.firstElementChild.style.width = `${100 * (state.share ?? 0)}%`;
  if (byId("notes").dataset.said !== state.notes.join("\n")) {
    byId("notes").dataset.said = state.notes.join("\n");
    byId("notes").replaceChildren(...state.notes.map((note) => make("p", "", note)));
  }
  const counts = [["all", state.runs], ...STATUSES.filter((name) => state.counts[name]).map((name) => [name, state.counts[name]])];
  if (!counts.some(([name]) => name === shown)) choose("all");
  const filter = byId("filter");
  const key = counts.map(([name]) => name).join();
  if (filter.dataset.names !== key) {
    filter.dataset.names = key;
    filter.replaceChildren(...counts.map(([name]) => {
      const button = make("button", "", `${name} `);
      button.type = "button";
      button.dataset.show = name;
      button.title = MEANING[name] ?? "";
      button.append(make("b"));
      button.addEventListener("click", () => choose(name));
      return button;
    }));
    choose(shown);
  }
  for (const [name, count] of counts) set(filter.querySelector(`[data-show="${name}"] b`), `${count}`);
}

function choose(name) {
  shown = name;
  for (const button of byId("filter").children) button.setAttribute("aria-pressed", String(button.dataset.show === name));
  for (const entry of rows.values()) entry.element.hidden = name !== "all" && entry.row.status !== name;
}

async function look() {
  try {
    const answer = await fetch(`state?version=${version}&since=${since}`);
    if (!answer.ok) throw new Error(await answer.text());
    const state = await answer.json();
    take(state);
    drawHead(state);
    for (const entry of rows.values()) set(entry.ago, ago(entry.row));
  } catch (error) {
    document.body.classList.add("gone");
    set(byId("says"), "The server has stopped, so this page is out of date; restart searchlab watch.");
    set(byId("left"), "");
    version = 0; // a different server may answer here next
  }
  setTimeout(look, AGAIN);
}

look();

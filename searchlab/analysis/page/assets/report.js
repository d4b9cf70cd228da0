"use strict";
// All that the page does, without a request: charts as they come into view, the legend, switches, tables, contents.

const SVG = document.getElementById("svg").namespaceURI;
// strategies: their names. lit: those highlighted at first. own: the one that was registered to be compared, or null.
const { strategies, lit: first, own, colours } = JSON.parse(document.getElementById("data").textContent);
// The numbers of colours, dashes and markers differ, so that no two of the first 20 strategies look the same.
const DASHES = ["none", "9 3", "10 3 3 3", "4 2"];
const MARKERS = [
  "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z", "M-3.5-3.5H3.5V3.5H-3.5Z", "M0-4.6L4.2 3.4H-4.2Z", "M0-4.6L4.6 0L0 4.6L-4.6 0Z",
  "M0 4.6L4.2-3.4H-4.2Z", "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z", "M-4.6 0L3.4-4.2V4.2Z",
  "M0-5L1.5-1.5L5 0L1.5 1.5L0 5L-1.5 1.5L-5 0L-1.5-1.5Z", "M4.6 0L-3.4-4.2V4.2Z",
];
const FLOOR = 0.1; // the least regret that is drawn, in percent
const PAPER = 680; // the width of a chart on paper, in CSS pixels
const PLACE = new Map(strategies.map((name, place) => [name, place]));
const figures = {}; // the charts of the page as numbers, by id
const charts = [];
const near = new Set(); // the charts in view, or nearly
const lit = new Set(first);
const chosen = { view: "trials", regret: false, seeds: false, only: false }; // the switches of the whole page

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const short = (name, most) => (name.length <= most ? name : `${name.slice(0, most / 2)}…${name.slice(1 - most / 2)}`);
const plain = (value) => String(Number(value.toPrecision(value >= 1000 ? 6 : 3)));
const press = (button, on) => button.setAttribute("aria-pressed", String(on));

function make(tag, attributes, parent, text) {
  const made = document.createElementNS(SVG, tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function html(tag, className, ...children) {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...children);
  return made;
}

// Attributes of what is drawn for the strategy at a place; grey strategies lose their colour by data-s.
const look = (kind, s) => ({ class: `${kind} c${s % colours}${s === own ? " own" : ""}`, "data-s": s });
const marker = (s, x, y, parent) => make("path", { ...look("marker fill", s), d: MARKERS[s % MARKERS.length], transform: `translate(${x} ${y})` }, parent);

// Values from low to high in steps of 1, 2 or 5, or of decades and parts of them, for at most about count labels.
function ticks(low, high, count, log) {
  if (log) {
    const decade = count / Math.log10(high / low);
    const parts = decade > 2.6 ? [1, 2, 5] : decade > 1.4 ? [1, 3] : [1];
    const exponents = Array.from({ length: Math.ceil(Math.log10(high / low)) + 2 }, (_, i) => Math.floor(Math.log10(low)) + i);
    return exponents.flatMap((e) => parts.map((part) => part * 10 ** e)).filter((x) => x >= low * 0.999 && x <= high * 1.001);
  }
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
  const from = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step + 1e-9) - from + 1 }, (_, i) => (from + i) * step);
}

// A scale from values to pixels.
function scale(low, high, from, to, log) {
  const part = log ? (x) => Math.log(Math.max(x, low) / low) / Math.log(high / low) : (x) => (x - low) / (high - low);
  return (x) => Number((from + (to - from) * Math.max(-9, Math.min(part(x), 9))).toFixed(1));
}

// Moves places, ascending, apart by gap: pushed down from the top, then lifted off the bottom.
function spread(places, gap, bottom) {
  for (let i = 1; i < places.length; i++) places[i] = Math.max(places[i], places[i - 1] + gap);
  if (places.length) places[places.length - 1] = Math.min(places[places.length - 1], bottom);
  for (let i = places.length - 2; i >= 0; i--) places[i] = Math.min(places[i], places[i + 1] - gap);
  return places;
}

// One chart: a view of a figure, as charts/figures.py describes it.
class Chart {
  constructor(element) {
    this.element = element;
    this.figure = figures[element.dataset.figure];
    [this.view] = this.figure.views;
    this.plot = element.querySelector(".plot");
    this.plot.style.minHeight = `${this.size(this.plot.clientWidth, lit.size)[1]}px`; // until it is drawn
    this.readout = html("div", "readout");
    this.readout.setAttribute("aria-live", "polite");
  }

  get regret() {
    return chosen.regret && Boolean(this.figure.best);
  }

  // Returns a throughput on the scale of the y axis; without a program, regret is infinite.
  scaled(y) {
    if (!this.regret || y === null) return y;
    return y > 0 ? Math.max(FLOOR, 100 * (this.figure.best / y - 1)) : Infinity;
  }

  text(y) {
    if (!this.regret) return y.toFixed(this.figure.digits);
    if (y === Infinity) return "no program";
    return y <= FLOOR ? `${FLOOR} % or less` : `${y.toFixed(y < 1 ? 2 : y < 10 ? 1 : 0)} %`;
  }

  // Returns the visible lines as the y axis has them: the grey ones first, the strategy in question last.
  lines() {
    const rank = ({ s }) => (s === own ? 2 : Number(lit.has(s)));
    const shown = this.view.series.map(({ strategy, y, lower, upper }) => {
      const [line, low, high] = [y, lower, upper].map((edge) => edge && edge.map((value) => this.scaled(value)));
      const [bottom, top] = this.regret ? [high, low] : [low, high];
      return { s: PLACE.get(strategy), y: line.map((value) => (value === Infinity ? null : value)), lower: bottom, upper: top };
    });
    return shown.filter(({ s, y }) => (!chosen.only || lit.has(s)) && y.some((value) => value !== null)).sort((a, b) => rank(a) - rank(b));
  }

  // Returns the ends of the y axis: those of what is shown, and of levels near it.
  ends(lines, levels) {
    const values = lines.flatMap(({ s, y, lower, upper }) => (lit.has(s) && lower ? [...y, ...lower, ...upper] : y));
    const known = values.filter((y) => y !== null && y !== Infinity);
    let [low, high] = known.length ? known.reduce(([a, b], y) => [Math.min(a, y), Math.max(b, y)], [Infinity, -Infinity]) : [0, 1];
    if (this.regret) return [low / 1.25, Math.max(high, 10 * low) * 1.25];
    for (const { y } of levels) {
      if (y > high && y < 2 * high) high = y;
      if (y < low && y > low - (high - low)) low = y;
    }
    if (low > 0 && low < 0.2 * high) low = 0; // nearly the whole range: then from its beginning
    const air = 0.05 * (high - low || Math.abs(high) || 1);
    const { top, bottom } = this.view;
    high = top === null ? high + air : Math.min(high + air, top === 1 ? 1.04 : top);
    low -= low === 0 || (low > 0 && low <= air) ? 0 : air;
    return [bottom === null ? low : Math.max(low, bottom * 1.05), high];
  }

  size(width, names) {
    const named = width >= 620 && strategies.length > 1;
    return [named, Math.round(Math.max(240, Math.min(430, width * 0.5), named ? names * 17 + 64 : 0))];
  }

  draw(paper) {
    this.fresh = !paper;
    const { view, figure } = this;
    const lines = (this.drawn = this.lines());
    const labelled = lines.filter(({ s }) => lit.has(s));
    const levels = view.levels.map(({ y, name }) => ({ y: this.scaled(y), name })).filter(({ y }) => !this.regret || y > FLOOR);
    const width = paper || Math.max(260, this.plot.clientWidth);
    this.element.classList.toggle("narrow", width < 520);
    const [named, height] = this.size(width, labelled.length);
    this.plot.style.minHeight = "";
    const longest = Math.max(0, ...labelled.map(({ s }) => Math.min(strategies[s].length, 26)));
    const [left, top, bottom] = [46, 20, height - 44];
    const right = width - (named && labelled.length ? (this.regret ? 96 : 54) + longest * 6.8 : 14);
    this.box = { left, top, right, bottom, width };

    const [start, end] = [view.x[0], view.x[view.x.length - 1]];
    const log = view.x.length > 1 && start > 0 && end / start >= 100;
    const from = log || start >= end / 4 ? start : Math.min(0, start);
    const [low, high] = this.ends(lines, levels);
    this.px = scale(from, end > from ? end : from + 1, left, right, log);
    this.py = scale(low, high, bottom, top, this.regret);

    const quantity = this.regret ? "regret, % over the time of the best known" : view.quantity;
    const ends = this.ranked(lines, view.x.length - 1).map(([s, { y }]) => `${strategies[s]} ends at ${this.text(y)}.`);
    const svg = (this.svg = make("svg", {
      viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
      "aria-label": `${figure.title}: ${quantity} by ${view.label}. ${ends.join(" ")} Arrow keys read values.`,
    }));
    const across = (y, kind) => make("line", { class: kind, x1: left, x2: right, y1: y, y2: y }, svg);
    for (const y of ticks(low, high, Math.max(3, (bottom - top) / (this.regret ? 50 : 36)), this.regret)) {
      across(this.py(y), "grid-line");
      make("text", { x: left - 7, y: this.py(y) + 4, "text-anchor": "end" }, svg, plain(y));
    }
    for (const x of ticks(from, end, (right - left) / 50, log)) {
      make("line", { class: "axis", x1: this.px(x), x2: this.px(x), y1: bottom, y2: bottom + 5 }, svg);
      make("text", { x: this.px(x), y: bottom + 18, "text-anchor": "middle" }, svg, plain(x));
    }
    across(bottom, "axis");
    make("text", { x: (left + right) / 2, y: height - 8, "text-anchor": "middle" }, svg, view.label);
    make("text", { x: 2, y: 11 }, svg, quantity);

    const clip = `clip-${this.element.id}`;
    make("rect", { x: left, y: top - 8, width: right - left, height: bottom - top + 8 }, make("clipPath", { id: clip }, svg));
    const inside = make("g", { "clip-path": `url(#${clip})` }, svg);
    if (view.shade) {
      make("rect", { class: "shade", x: left, width: this.px(view.shade.end) - left, y: top - 8, height: bottom - top + 8 }, inside);
      make("text", { class: "level-name shade-name", x: left + 6, y: bottom - 7 }, inside, `${view.shade.name}: ${plain(view.shade.end)} ${view.label}`);
    }
    const seeds = chosen.seeds && figure.traces;
    const shade = Math.min(0.16, Math.max(0.05, 0.8 / labelled.length));
    if (!seeds) for (const line of labelled) this.band(inside, line, shade);
    for (const { y } of levels) inside.append(across(this.py(y), "level"));
    if (seeds) for (const { s } of labelled) this.trace(inside, s, figure.traces[strategies[s]]);
    lines.forEach((line, rank) => this.line(inside, line, rank / lines.length));
    levels.forEach(({ y, name }, place) => {
      if (y >= low && y <= high) make("text", { class: "level-name", x: left + 6, y: this.py(y) + (place && y > 0 ? 14 : -5) }, svg, name);
    });
    if (named) this.names(svg, labelled);
    this.cross = make("line", { class: "cross", y1: top, y2: bottom, visibility: "hidden" }, svg);

    for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, (event) => this.point(event));
    svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.read(null));
    svg.addEventListener("keydown", (event) => this.type(event));
    svg.addEventListener("blur", () => this.read(null));
    this.plot.replaceChildren(svg, this.readout);
    this.read(null);
  }

  // Returns what a line has at a place; a step line that has ended holds its last value.
  value({ y, lower, upper }, i) {
    if (y[i] !== null) return { y: y[i], lower: lower && lower[i], upper: upper && upper[i] };
    const held = this.figure.step ? y.slice(0, i).findLast((value) => value !== null) : undefined;
    return held === undefined ? null : { y: held, held: true };
  }

  // Returns the values of lines at a place, the best first; for regret, the least.
  ranked(lines, i) {
    const values = lines.map((line) => [line.s, this.value(line, i)]).filter(([, value]) => value);
    return values.sort((a, b) => (this.regret ? a[1].y - b[1].y : b[1].y - a[1].y));
  }

  // Returns the points of an edge in pixels, each value held up to the next if the figure has steps.
  points(edge, y) {
    const found = [];
    edge.forEach((value, i) => {
      if (value === null || y[i] === null) return;
      const [px, py] = [this.px(this.view.x[i]), this.py(value)];
      if (this.figure.step && found.length) found.push([px, found[found.length - 1][1]]);
      found.push([px, py]);
    });
    return found.filter(([, py], i) => !this.figure.step || !found[i - 1] || !found[i + 1] || py !== found[i - 1][1] || py !== found[i + 1][1]);
  }

  band(svg, { s, y, lower, upper }, opacity) {
    if (!lower) return;
    const edge = [...this.points(upper, y), ...this.points(lower, y).reverse()];
    make("path", { ...look("band fill", s), d: `M${edge.map((point) => point.join(" ")).join("L")}Z`, opacity }, svg);
  }

  line(svg, { s, y }, shift) {
    const grey = !lit.has(s);
    const points = this.points(y, y);
    const path = make("path", { ...look(grey ? "line grey stroke" : "line stroke", s), d: `M${points.map((point) => point.join(" ")).join("L")}` }, svg);
    make("title", {}, path, strategies[s]);
    if (grey) return;
    path.setAttribute("stroke-dasharray", DASHES[s % DASHES.length]);
    const [end, last] = [points[points.length - 1], this.px(this.view.x[this.view.x.length - 1])];
    if (end[0] < last && this.figure.step) make("path", { ...look("held stroke", s), d: `M${end.join(" ")}H${last}` }, svg);
    // Markers are at different places on every line, so that lines that coincide can be told apart.
    let next = points[0][0] + 12 + 90 * shift;
    y.forEach((value, i) => {
      const px = this.px(this.view.x[i]);
      if (value === null || (px < next && points.length > 3)) return;
      marker(s, px, this.py(value), svg);
      next = px + 90;
    });
  }

  // Draws the runs of a strategy, a thin line for each seed: trials, throughputs, seconds.
  trace(svg, s, runs) {
    const paths = runs.map(([trials, throughputs, seconds]) => {
      const x = this.view.key === "seconds" ? seconds : trials;
      const found = throughputs.map((y, i) => [this.px(x[i]), this.py(this.scaled(y))]).filter((_, i) => throughputs[i]);
      return found.map(([px, py], i) => (i ? `H${px}V${py}` : `M${px} ${py}`)).join("");
    });
    make("path", { ...look("trace stroke", s), d: paths.join("") }, svg);
  }

  // Names the highlighted lines at the right, beside their ends as far as there is room.
  names(svg, lines) {
    const { right, top, bottom } = this.box;
    const last = ({ y }) => y.findLast((value) => value !== null);
    const order = lines.map((line) => [Math.min(Math.max(this.py(last(line)), top), bottom), line]).sort(([a], [b]) => a - b);
    const places = spread(order.map(([y]) => y), 16, bottom);
    order.forEach(([from, line], i) => {
      const { s } = line;
      make("path", { ...look("lead stroke", s), d: `M${right} ${from}L${right + 12} ${places[i]}` }, svg);
      marker(s, right + 12, places[i], svg);
      const end = this.figure.ends ? `  ${this.text(last(line))}` : "";
      make("text", { ...look("end", s), x: right + 21, y: places[i] + 4 }, svg, short(strategies[s], 26) + end);
    });
  }

  point(event) {
    const frame = this.svg.getBoundingClientRect();
    const x = ((event.clientX - frame.left) / frame.width) * this.box.width;
    const apart = this.view.x.map((value) => Math.abs(this.px(value) - x));
    this.read(apart.indexOf(Math.min(...apart)));
  }

  type(event) {
    const end = this.view.x.length - 1;
    const at = this.at ?? -1;
    const to = { ArrowRight: Math.min(end, at + 1), ArrowLeft: Math.max(0, at - 1), Home: 0, End: end, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.read(to);
  }

  // Shows the values at a place, or none.
  read(at) {
    this.at = at;
    this.readout.classList.toggle("on", at !== null);
    this.cross.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at === null) return this.readout.replaceChildren();
    const x = this.px(this.view.x[at]);
    for (const end of ["x1", "x2"]) this.cross.setAttribute(end, x);
    const rows = this.ranked(this.drawn, at).map(([s, { y, lower, upper, held }]) => {
      const swatch = make("svg", { class: "swatch", width: 12, height: 12, viewBox: "-6 -6 12 12" });
      marker(s, 0, 0, swatch);
      const band = typeof lower === "number" ? ` [${this.text(lower)}, ${this.text(upper)}]` : "";
      const name = html("span", "", swatch, ` ${short(strategies[s], 26)}`);
      return html("div", s === own ? "own" : lit.has(s) ? "" : "soft", name, html("span", "", this.text(y) + band + (held ? " (ended)" : "")));
    });
    this.readout.replaceChildren(html("b", "", `${plain(this.view.x[at])} ${this.view.label}`), ...rows);
    const left = x < this.box.width / 2;
    this.readout.style.left = left ? "auto" : `${this.box.left + 4}px`;
    this.readout.style.right = left ? "4px" : "auto";
  }
}

// What the switches say, for the whole page. Charts are drawn again when they are in view; all of them on paper.

const sheet = new CSSStyleSheet(); // a page may have tens of thousands of rows
document.adoptedStyleSheets = [sheet];

function refresh(paper) {
  const grey = strategies.map((_, s) => s).filter((s) => !lit.has(s));
  const rules = grey.map((s) => `[data-s="${s}"] { --c: var(--faint); }`);
  if (chosen.only) rules.push(...grey.map((s) => `[data-strategy="${s}"], .spark [data-s="${s}"] { display: none !important; }`));
  sheet.replaceSync(rules.join("\n"));
  for (const button of all("[data-toggle]")) press(button, lit.has(Number(button.dataset.toggle)));
  for (const button of all("[data-view]")) press(button, button.dataset.view === chosen.view);
  for (const button of all("[data-scale]")) press(button, (button.dataset.scale === "regret") === chosen.regret);
  for (const button of all("[data-seeds]")) press(button, chosen.seeds);
  for (const button of all("#only")) {
    press(button, chosen.only);
    button.hidden = !grey.length;
  }
  for (const chart of charts) {
    const { views } = chart.figure;
    chart.view = views.find(({ key }) => key === chosen.view) || (views.includes(chart.own) ? chart.own : views[0]);
    chart.element.querySelectorAll("[data-view]").forEach((button) => press(button, button.dataset.view === chart.view.key));
    chart.fresh = false;
    if (paper || near.has(chart)) chart.draw(paper);
  }
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  const row = target.closest("tr[data-strategy] > th .name");
  const { toggle, view, scale: axis, seeds } = button ? button.dataset : row ? { toggle: row.closest("tr").dataset.strategy } : {};
  if (toggle !== undefined) {
    if (!lit.delete(Number(toggle))) lit.add(Number(toggle));
  } else if (button && button.id === "only") chosen.only = !chosen.only;
  else if (view === "trials" || view === "seconds") chosen.view = view;
  else if (view !== undefined) {
    const chart = charts.find(({ element }) => element.contains(button));
    chart.own = chart.figure.views.find(({ key }) => key === view);
  } else if (axis !== undefined) chosen.regret = axis === "regret";
  else if (seeds !== undefined) chosen.seeds = !chosen.seeds;
  else {
    if (button && button.className === "sort") sort(button.closest("th"));
    if (target.closest("#toc a") && !wide.matches) toc.open = false;
    return;
  }
  refresh();
});

for (const select of all("#reference")) {
  select.addEventListener("change", () => all("#differences tbody").forEach((body) => (body.hidden = body.dataset.reference !== select.value)));
}

for (const button of all("[data-toggle]")) {
  const s = Number(button.dataset.toggle);
  const sample = button.querySelector("svg");
  make("path", { ...look("stroke", s), d: "M1 7H33", "stroke-dasharray": DASHES[s % DASHES.length] }, sample);
  marker(s, 17, 7, sample);
}

// Tables. A number sorts by its first figure, "not reached" after all numbers, and a dash last either way.

function key(cell) {
  const text = cell.textContent.trim();
  if (text === "–" || text === "-" || text === "") return null;
  const number = parseFloat(text.replace(/^[<>] /, "").replaceAll(",", ""));
  return Number.isNaN(number) ? (text.startsWith("not reached") ? Infinity : text) : number;
}

function compare(a, b) {
  if (a === null || b === null) return 0;
  if (typeof a === "number" && typeof b === "number") return a === b ? 0 : a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

// Sorts by the column of a head: ascending, descending, and as the report has it.
function sort(head) {
  const table = head.closest("table");
  const to = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
  for (const other of all("[aria-sort]", head.parentElement)) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", to);
  const way = to === "descending" ? -1 : 1;
  const rows = table.given.map((row) => [key(row.cells[Number(head.dataset.column)]), row]);
  if (to !== "none") rows.sort(([a], [b]) => (a === null) - (b === null) || way * compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

function sortable(table) {
  table.given = [...table.tBodies[0].rows];
  let column = 0;
  for (const head of table.tHead.rows[0].cells) {
    if (head.colSpan === 1 && !head.classList.contains("wide") && table.given.length > 1) {
      const button = html("button", "sort", ...head.childNodes);
      button.type = "button";
      head.append(button);
      head.dataset.column = column;
      head.setAttribute("aria-sort", "none");
    }
    column += head.colSpan;
  }
}

// Sections. Of many, each is packed until it comes into view, is linked to, or is printed.

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = charts.find(({ element }) => element === target);
    near[isIntersecting ? "add" : "delete"](chart);
    if (isIntersecting && !chart.fresh) chart.draw();
  }
}, { rootMargin: "900px 0px" });

// Makes what is in an element work.
function begin(element) {
  for (const script of all("script.figures", element)) Object.assign(figures, JSON.parse(script.textContent));
  all("table.sortable", element).forEach(sortable);
  for (const figure of all("[data-figure]", element)) {
    const chart = new Chart(figure);
    charts.push(chart);
    watcher.observe(figure);
  }
}

function fill(section) {
  if (!section || !section.content) return false;
  section.innerHTML = section.content;
  section.content = null;
  section.classList.remove("packed");
  begin(section);
  refresh();
  return true;
}

const packed = all("section.packed");
const nearing = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.near = isIntersecting;
    if (isIntersecting) fill(target);
  }
}, { rootMargin: "1200px 0px" });

async function unpack() {
  for (const section of packed) {
    const bytes = Uint8Array.from(atob(section.querySelector("script").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    section.content = await new Response(stream).text();
    if (section.near) fill(section);
    if (location.hash.startsWith(`#${section.id}`)) jump();
  }
}

// Goes to the place that the address names, which may be in a packed section.
function jump() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (fill(document.getElementById(id.split("-")[0]))) document.getElementById(id)?.scrollIntoView();
}

// Contents: a column at the side of a wide window, else a list that opens.

const toc = document.getElementById("toc");
const wide = matchMedia("(min-width: 78rem)");
const links = all("a", toc);

function follow() {
  const places = links.map((link) => document.getElementById(link.hash.slice(1)).getBoundingClientRect().top);
  const here = links[Math.max(0, places.findLastIndex((top) => top < 160))];
  for (const link of links) link.toggleAttribute("aria-current", link === here);
  if (wide.matches) here.scrollIntoView({ block: "nearest" });
}

function arrange() {
  toc.open = wide.matches;
  follow();
}

let width = 0;
new ResizeObserver(() => {
  if (document.body.clientWidth === width) return;
  const opened = !width;
  width = document.body.clientWidth;
  const bar = wide.matches ? 0 : document.getElementById("side").offsetHeight;
  document.documentElement.style.scrollPaddingTop = `${bar + 12}px`;
  if (opened) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  refresh();
}).observe(document.body);
window.addEventListener("beforeprint", () => {
  packed.forEach(fill);
  refresh(PAPER);
});
window.addEventListener("afterprint", () => refresh());
window.addEventListener("hashchange", jump);
window.addEventListener("scroll", () => requestAnimationFrame(follow), { passive: true });
wide.addEventListener("change", arrange);
arrange();
begin(document);
packed.forEach((section) => nearing.observe(section));
unpack();

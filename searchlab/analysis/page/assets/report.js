// Draws the charts in sight, handles the buttons, and sorts tables.

const PAPER = 680; // the width of a chart on it, in CSS pixels
const charts = [...document.querySelectorAll("[data-figure]")].map((element) => new Chart(element));
const near = new Set(); // the charts in sight, or nearly

// Redraws what is in sight; for paper, everything.
function draw(paper) {
  for (const chart of charts) {
    chart.fresh = false;
    if (paper || near.has(chart)) chart.draw(paper);
  }
}

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = charts.find(({ element }) => element === target);
    near[isIntersecting ? "add" : "delete"](chart);
    if (isIntersecting && !chart.fresh) chart.draw();
  }
}, { rootMargin: "900px 0px" });

// One switch for all charts that have it.
function change(action) {
  charts.forEach(action);
  for (const chart of near) if (!chart.fresh) chart.draw();
}

const sheet = new CSSStyleSheet(); // a page may have tens of thousands of rows
document.adoptedStyleSheets = [sheet];

function refresh() {
  for (const button of document.querySelectorAll("[data-toggle]")) {
    button.setAttribute("aria-pressed", String(!hidden.has(Number(button.dataset.toggle))));
  }
  sheet.replaceSync([...hidden].map((s) => `[data-strategy="${s}"] { display: none !important; }`).join(""));
  const all = document.getElementById("all");
  if (all) all.hidden = hidden.size === 0;
  draw();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { toggle, view, scale, seeds } = button.dataset;
  if (toggle !== undefined) {
    const s = Number(toggle);
    if (!hidden.delete(s)) hidden.add(s);
    refresh();
  } else if (button.id === "all") {
    hidden.clear();
    refresh();
  } else if (view === "trials" || view === "seconds") {
    change((chart) => chart.show(view));
  } else if (view !== undefined) {
    change((chart) => chart.element.contains(button) && chart.show(view));
  } else if (scale !== undefined) {
    change((chart) => chart.set({ regret: scale === "regret" }));
  } else if (seeds !== undefined) {
    const on = button.getAttribute("aria-pressed") !== "true";
    change((chart) => chart.set({ seeds: on }));
  } else if (button.className === "sort") {
    sort(button.closest("th"));
  }
});

for (const button of document.querySelectorAll("[data-toggle]")) {
  const s = Number(button.dataset.toggle);
  const sample = button.querySelector("svg");
  button.querySelector("span").textContent = short(data.strategies[s], 26);
  sample.classList.add(colour(s));
  make("path", { d: "M1 7H33", "stroke-dasharray": dash(s) || "none" }, sample);
  make("path", { class: "fill", d: marker(s), transform: "translate(17 7)" }, sample);
}

// Tables. A number sorts by its first figure, "not reached" after all numbers, and a dash last in both orders.

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

// Sorts by the column of a head: ascending, descending, and in the order of the report.
function sort(head) {
  const table = head.closest("table");
  const to = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
  for (const other of head.parentElement.cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", to);
  table.classList.toggle("sorted", to !== "none");
  const way = to === "descending" ? -1 : 1;
  const column = Number(head.dataset.column);
  const rows = table.given.map((row) => [key(row.cells[column]), row]);
  if (to !== "none") rows.sort(([a], [b]) => (a === null) - (b === null) || way * compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  table.given = [...table.tBodies[0].rows];
  let column = 0;
  for (const head of table.tHead.rows[0].cells) {
    if (head.colSpan === 1 && !head.classList.contains("wide") && table.given.length > 1) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      head.dataset.column = column;
      head.setAttribute("aria-sort", "none");
    }
    column += head.colSpan;
  }
}

window.addEventListener("beforeprint", () => draw(PAPER));
window.addEventListener("afterprint", () => draw());
let width = 0;
new ResizeObserver(() => {
  if (document.body.clientWidth === width) return;
  width = document.body.clientWidth;
  const legend = document.getElementById("legend");
  if (legend) document.documentElement.style.scrollPaddingTop = `${legend.offsetHeight + 12}px`;
  draw();
}).observe(document.body);
for (const chart of charts) {
  chart.reserve();
  watcher.observe(chart.element);
}

"use strict";
// What the page does, without a request: draws charts as they come into view, and follows the legend and the selects.

const { strategies, highlighted: initiallyHighlighted, colours } = JSON.parse(document.getElementById("data").textContent);
const data = {}; // the charts' data as columns by name, and their specifications by chart and view
const specifications = {};
const highlighted = new Set(initiallyHighlighted);
const chosen = { views: [], only: false, strategies: {} }; // the latest view comes last; strategies by parameter
const near = new Set(); // the charts in view, or nearly
const dark = matchMedia("(prefers-color-scheme: dark)");
let paper = false; // whether the page is being printed

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const narrow = () => !paper && document.body.clientWidth < 620;

// Charts

function rows(columns) {
  const [[, first] = [null, []]] = Object.entries(columns);
  return first.map((_, i) => Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[i]])));
}

// Returns the complete specification of a chart: on screen, with the page's colours and what is highlighted now.
function specify(figure) {
  const views = specifications[figure.id];
  const view = chosen.views.findLast((name) => name in views) ?? Object.keys(views)[0];
  for (const select of all("select", figure)) select.value = view;
  let text = JSON.stringify(views[view]);
  if (dark.matches && !paper) colours.forEach((colour, i) => (text = text.replaceAll(colour, css(`--c${i}`))));
  const spec = JSON.parse(text);
  const names = strategies.filter((strategy) => highlighted.has(strategy));
  for (const [param] of (spec.layer ?? []).flatMap((layer) => (layer.params ? [layer.params] : []))) {
    param.value = names.map((strategy) => ({ strategy }));
    for (const { color } of spec.layer.map((layer) => layer.encoding ?? {})) {
      if (color?.legend) Object.assign(color.legend, { values: names.filter((name) => color.scale.domain.includes(name)), columns: 1 });
    }
  }
  if (chosen.only && text.includes('"field":"strategy"')) spec.transform = [...(spec.transform ?? []), { filter: { field: "strategy", oneOf: names } }];
  if (narrow()) for (const { text, color, fill } of (spec.layer ?? []).map((layer) => layer.encoding ?? {})) {
    if (text?.field === "text") text.field = "p"; // which is short
    for (const channel of [color, fill?.condition]) if (channel?.legend) channel.legend.columns = 1;
  }
  for (const param of spec.params ?? []) {
    const name = chosen.strategies[param.name];
    if (param.bind.options.includes(name)) param.value = name;
  }
  const [strategy, reference] = spec.params ?? [];
  if (reference?.value === strategy?.value && reference) reference.value = reference.bind.options.find((name) => name !== strategy.value);
  return {
    width: paper ? (figure.closest(".grid") ? 440 : 660) : figure.querySelector(".plot").clientWidth, autosize: { type: "fit-x", contains: "padding" },
    description: figure.querySelector("h3").textContent, ...spec, data: { values: rows(data[spec.data.name]) },
  };
}

function configure() {
  const [ink, line] = paper || !dark.matches ? ["#1b1f24", "#e6e9ed"] : [css("--ink"), css("--grid")];
  const font = { labelColor: ink, labelFontSize: 12, titleColor: ink, titleFontSize: 12, titleFontWeight: "normal" };
  return {
    background: paper ? "white" : css("--card"), font: "system-ui, sans-serif", view: { stroke: null }, text: { fontSize: 12 },
    axis: { ...font, gridColor: line, domainColor: ink, tickColor: ink, labelSeparation: 6 },
    legend: { ...font, labelLimit: narrow() ? 300 : 220, orient: narrow() ? "bottom" : "right" },
  };
}

async function draw(figure) {
  const wanted = (figure.state = state());
  const plot = figure.querySelector(".plot");
  plot.style.minHeight = `${plot.clientHeight}px`; // so that the page does not move
  const { view } = await vegaEmbed(plot, specify(figure), {
    actions: { export: true, source: false, compiled: false, editor: false },
    ast: true, // instead of compiling code, which the page's policy forbids
    config: configure(), defaultStyle: false, downloadFileName: figure.id, mode: "vega-lite", renderer: "svg",
    tooltip: { disableDefaultStyle: true, formatTooltip },
  });
  figure.view?.finalize();
  figure.view = view;
  plot.style.minHeight = "";
  figure.drawn = wanted;
  const selects = all(".vega-bind select", plot);
  const disable = () => { // a strategy has no difference from itself
    for (const select of selects) for (const option of select.options) {
      option.disabled = selects.some((other) => other !== select && other.value === option.value);
    }
  };
  disable();
  for (const select of selects) {
    select.addEventListener("change", () => {
      disable();
      chosen.strategies[select.name] = select.value;
      figure.state = figure.drawn = state(); // it has been drawn already, and keeps the focus
      refresh();
    });
  }
  if (!("highlighted" in view.getState().signals)) return;
  view.addSignalListener("highlighted", (_, { strategy = [] }) => {
    for (const name of view.scale("color").domain()) highlighted[strategy.includes(name) ? "add" : "delete"](name);
    refresh();
  });
}

// Returns the highlighted strategies' values, the highest first as in the chart, after what else a tooltip contains.
function formatTooltip(values, escape) {
  const value = ([name, text]) => (strategies.includes(name) ? parseFloat(text.replace("\u2212", "-")) : Infinity);
  const shown = Object.entries(values).filter(([name]) => highlighted.has(name) || !strategies.includes(name));
  shown.sort((a, b) => value(b) - value(a) || 0);
  return `<table>${shown.map(([name, text]) => `<tr><td class="key">${escape(name)}</td><td>${escape(text)}</td></tr>`).join("")}</table>`;
}

// Returns what a chart's appearance depends on.
const state = () => JSON.stringify([[...highlighted], chosen, dark.matches, document.body.clientWidth, paper]);

function refresh() {
  const faint = strategies.filter((name) => !highlighted.has(name));
  const rules = chosen.only ? faint.map((name) => `[data-strategy="${strategies.indexOf(name)}"] { display: none !important; }`) : [];
  sheet.replaceSync(rules.join("\n"));
  for (const button of all("[data-toggle]")) button.setAttribute("aria-pressed", String(highlighted.has(strategies[button.dataset.toggle])));
  for (const button of all("#only")) {
    button.setAttribute("aria-pressed", String(chosen.only));
    button.hidden = !faint.length;
  }
  const shown = paper ? Object.keys(specifications).map((id) => document.getElementById(id)) : near;
  for (const figure of shown) if (figure.state !== state()) draw(figure);
}

const sheet = new CSSStyleSheet(); // a page may have tens of thousands of rows
document.adoptedStyleSheets = [sheet];

document.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  const row = target.closest("tr[data-strategy] > th .name");
  const toggle = button?.dataset.toggle ?? row?.closest("tr").dataset.strategy;
  if (toggle !== undefined) {
    if (!highlighted.delete(strategies[toggle])) highlighted.add(strategies[toggle]);
    refresh();
  } else if (button?.id === "only") {
    chosen.only = !chosen.only;
    refresh();
  } else if (button?.className === "sort") sort(button.closest("th"));
  else if (target.closest("a[href^='#']")) reveal(target.closest("a").hash);
});

// Opens the sections that contain the target of a link, and scrolls to it.
function reveal(hash) {
  if (!wide.matches) toc.open = false;
  const target = document.getElementById(hash.slice(1));
  for (let part = target?.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target?.scrollIntoView();
}
window.addEventListener("hashchange", () => reveal(location.hash));

document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-chart] .head select")) return;
  chosen.views = [...chosen.views.filter((view) => view !== target.value), target.value];
  refresh();
});

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) near[isIntersecting ? "add" : "delete"](target);
  refresh();
}, { rootMargin: "600px 0px" });

// Decompresses the charts' data, and draws the charts as they come into view.
async function load() {
  for (const script of all("script.charts")) {
    const bytes = Uint8Array.from(atob(script.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const content = await new Response(stream).json();
    Object.assign(data, content.data);
    Object.assign(specifications, content.charts);
    for (const id of Object.keys(content.charts)) watcher.observe(document.getElementById(id));
  }
}

// Contents: a column at the side of a wide window, else a list that opens.

const toc = document.getElementById("toc");
const wide = matchMedia("(min-width: 78rem)");
const arrange = () => (toc.open = wide.matches);

new ResizeObserver(() => {
  const bar = wide.matches ? 0 : document.getElementById("side").offsetHeight;
  document.documentElement.style.scrollPaddingTop = `${bar + 12}px`;
  refresh();
}).observe(document.body);
for (const kind of ["beforeprint", "afterprint"]) {
  window.addEventListener(kind, () => {
    paper = kind === "beforeprint";
    refresh();
  });
}
wide.addEventListener("change", arrange);
dark.addEventListener("change", () => refresh());
arrange();
all("table.sortable").forEach(sortable);
for (const plot of all("[data-height]")) plot.style.minHeight = `${plot.dataset.height}px`; // until it is drawn
reveal(location.hash);
load();

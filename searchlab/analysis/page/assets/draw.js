"use strict";
// The numbers in #data, colours, ticks. This file, chart.js and report.js form one script, without network requests.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = document.getElementById("svg").namespaceURI;
// The numbers of colours, dashes and markers differ, so no two of the first 20 strategies look the same.
const DASHES = ["", "9 3", "10 3 3 3", "4 2"];
const MARKERS = [
  "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z", "M-3.5-3.5H3.5V3.5H-3.5Z", "M0-4.6L4.2 3.4H-4.2Z", "M0-4.6L4.6 0L0 4.6L-4.6 0Z",
  "M0 4.6L4.2-3.4H-4.2Z", "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z", "M-4.6 0L3.4-4.2V4.2Z",
  "M0-5L1.5-1.5L5 0L1.5 1.5L0 5L-1.5 1.5L-5 0L-1.5-1.5Z", "M4.6 0L-3.4-4.2V4.2Z",
];
const FLOOR = 0.1; // the least regret that is distinguished, in percent
const hidden = new Set();

function make(tag, attributes, parent, text) {
  const made = document.createElementNS(SVG, tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

const colour = (s) => `c${s % data.colours}`;
const dash = (s) => DASHES[s % DASHES.length];
const marker = (s) => MARKERS[s % MARKERS.length];
const short = (name, most) => (name.length <= most ? name : `${name.slice(0, most / 2)}…${name.slice(1 - most / 2)}`);

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function logTicks(low, high, width) {
  const decade = width / Math.log10(high / low);
  const parts = decade > 130 ? [1, 2, 5] : decade > 70 ? [1, 3] : [1];
  const found = [];
  for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e++) {
    for (const part of parts) {
      const value = part * 10 ** e;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found;
}

// Returns each line of a view as [strategy, y, lower, upper] with an entry for each x. Places are stored as differences;
// a step line has only those at which it changes.
function unpacked(figure, view) {
  view.lines ||= view.series.map(([strategy, steps, ...edges]) => {
    const at = [];
    steps.forEach((step, i) => at.push(step + (i ? at[i - 1] : 0)));
    return [strategy, ...edges.map((edge) => {
      const filled = new Array(view.x.length).fill(null);
      edge.forEach((value, i) => {
        const end = figure.step && i + 1 < at.length ? at[i + 1] : at[i] + 1;
        filled.fill(value, at[i], end);
      });
      return filled;
    })];
  });
  return view.lines;
}

const plain = (value) => String(Number(value.toPrecision(value >= 1000 ? 6 : 3)));

// Moves ascending places apart by gap: pushes down from the top, then lifts off the bottom.
function spread(places, gap, bottom) {
  for (let i = 1; i < places.length; i++) places[i] = Math.max(places[i], places[i - 1] + gap);
  if (places.length) places[places.length - 1] = Math.min(places[places.length - 1], bottom);
  for (let i = places.length - 2; i >= 0; i--) places[i] = Math.min(places[i], places[i + 1] - gap);
  return places;
}

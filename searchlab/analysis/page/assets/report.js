"use strict";
// Draws the charts of the page from the numbers in #data, and answers its buttons. It asks nothing of the network.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = document.getElementById("svg").namespaceURI;
  // The numbers of colours, dashes and markers differ, so that no two of the first 20 strategies look the same.
  const DASHES = ["", "9 3", "10 3 3 3", "4 2"];
  const MARKERS = [
    "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z", "M-3.5-3.5H3.5V3.5H-3.5Z", "M0-4.6L4.2 3.4H-4.2Z", "M0-4.6L4.6 0L0 4.6L-4.6 0Z",
    "M0 4.6L4.2-3.4H-4.2Z", "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z", "M-4.6 0L3.4-4.2V4.2Z",
    "M0-5L1.5-1.5L5 0L1.5 1.5L0 5L-1.5 1.5L-5 0L-1.5-1.5Z", "M4.6 0L-3.4-4.2V4.2Z",
  ];
  const PAPER = 680; // the width of a chart on it, in CSS pixels
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

  const plain = (value) => String(Number(value.toPrecision(value >= 1000 ? 6 : 3)));

  // Places in [top, bottom], ascending, moved apart by gap: pushed down from the top, then lifted off the bottom.
  function spread(places, gap, bottom) {
    for (let i = 1; i < places.length; i++) places[i] = Math.max(places[i], places[i - 1] + gap);
    if (places.length) places[places.length - 1] = Math.min(places[places.length - 1], bottom);
    for (let i = places.length - 2; i >= 0; i--) places[i] = Math.min(places[i], places[i + 1] - gap);
    return places;
  }

  class Chart {
    constructor(element) {
      this.element = element;
      this.figure = data.figures[element.dataset.figure];
      this.title = element.querySelector("h3").textContent;
      this.plot = element.querySelector(".plot");
      this.key = Object.keys(this.figure.views)[0];
      this.readout = document.createElement("div");
      this.readout.className = "readout";
      this.readout.setAttribute("aria-live", "polite");
      this.at = null;
    }

    show(key) {
      if (!(key in this.figure.views)) return;
      this.key = key;
      for (const button of this.element.querySelectorAll("[data-view]")) {
        button.setAttribute("aria-pressed", String(button.dataset.view === key));
      }
      this.draw();
    }

    draw(paper) {
      const view = this.figure.views[this.key];
      this.view = view;
      const lines = view.series.filter((line) => !hidden.has(line[0]) && line[1].some((y) => y !== null));
      this.lines = lines;
      const width = paper || Math.max(260, this.plot.clientWidth);
      this.narrow = width < 520;
      this.element.classList.toggle("narrow", this.narrow);
      const named = width >= 620 && data.strategies.length > 1;
      const longest = Math.max(0, ...lines.map(([s]) => short(data.strategies[s], 26).length));
      const box = { left: 46, right: named ? 54 + longest * 6.6 : 14, top: 20, bottom: 44 };
      const height = Math.round(Math.max(240, Math.min(430, width * 0.5), named ? lines.length * 17 + 64 : 0));
      const inner = { width: width - box.left - box.right, height: height - box.top - box.bottom };
      this.box = box;

      const [first, last] = [view.x[0], view.x[view.x.length - 1]];
      const from = view.log ? first : Math.min(0, first) === 0 && first < last / 4 ? 0 : first;
      const across = last > from ? last : from + 1;
      const all = lines.flatMap(([, y, lower, upper]) => [...y, ...(lower || []), ...(upper || [])]).filter((y) => y !== null);
      const high = view.top !== null ? view.top * (view.top === 1 ? 1.04 : 1) : Math.max(1e-9, ...all, ...view.levels.map((l) => l[0])) * 1.05;
      const low = (view.bottom !== null ? view.bottom : Math.min(0, ...all)) * 1.05;
      this.px = (x) => box.left + inner.width * (view.log ? Math.log(x / from) / Math.log(across / from) : (x - from) / (across - from));
      this.py = (y) => box.top + inner.height * (1 - (y - low) / (high - low));

      const svg = make("svg", {
        viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
        "aria-label": `${this.title}: ${view.quantity} by ${view.label}. ${this.words(lines)} Arrow keys read values.`,
      });
      for (const y of ticks(low, high, Math.max(3, inner.height / 55))) {
        make("line", { class: "grid-line", x1: box.left, x2: box.left + inner.width, y1: this.py(y), y2: this.py(y) }, svg);
        make("text", { x: box.left - 7, y: this.py(y) + 4, "text-anchor": "end" }, svg, plain(y));
      }
      const marks = view.log ? logTicks(from, across, inner.width) : ticks(from, across, inner.width / 50);
      for (const x of marks) {
        make("line", { class: "axis", x1: this.px(x), x2: this.px(x), y1: box.top + inner.height, y2: box.top + inner.height + 5 }, svg);
        make("text", { x: this.px(x), y: box.top + inner.height + 18, "text-anchor": "middle" }, svg, plain(x));
      }
      make("line", { class: "axis", x1: box.left, x2: box.left + inner.width, y1: box.top + inner.height, y2: box.top + inner.height }, svg);
      make("text", { x: box.left + inner.width / 2, y: height - 8, "text-anchor": "middle" }, svg, view.label);
      make("text", { x: 2, y: 11 }, svg, view.quantity);

      const clip = `clip-${this.element.dataset.figure}`;
      make("rect", { x: box.left, y: box.top - 8, width: inner.width, height: inner.height + 8 }, make("clipPath", { id: clip }, svg));
      const inside = make("g", { "clip-path": `url(#${clip})` }, svg);
      const shade = Math.min(0.16, Math.max(0.05, 0.8 / lines.length));
      for (const line of lines) this.band(inside, line, shade);
      for (const [y] of view.levels) {
        make("line", { class: "level", x1: box.left, x2: box.left + inner.width, y1: this.py(y), y2: this.py(y) }, svg);
      }
      lines.forEach((line, rank) => this.line(inside, line, rank / lines.length));
      view.levels.forEach(([y, name], place) => {
        make("text", { class: "level-name", x: box.left + 6, y: this.py(y) + (place && y > 0 ? 14 : -5) }, svg, name);
      });
      if (named) this.ends(svg, lines, box.left + inner.width, box.top + inner.height);
      this.cross = make("line", { class: "cross", y1: box.top, y2: box.top + inner.height, visibility: "hidden" }, svg);

      svg.addEventListener("pointermove", (event) => this.point(event));
      svg.addEventListener("pointerdown", (event) => this.point(event));
      svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.read(null));
      svg.addEventListener("keydown", (event) => this.type(event));
      svg.addEventListener("blur", () => this.read(null));
      this.svg = svg;
      this.plot.replaceChildren(svg, this.readout);
      this.read(null);
    }

    value(line, i) {
      let y = line[1][i];
      if (y !== null) return { y, lower: line[2] && line[2][i], upper: line[3] && line[3][i] };
      if (!this.figure.step) return null;
      for (let before = i; before >= 0; before--) {
        y = line[1][before];
        if (y !== null) return { y, held: true };
      }
      return null;
    }

    words(lines) {
      const end = this.view.x.length - 1;
      return lines
        .map((line) => [line[0], this.value(line, end)])
        .filter(([, value]) => value)
        .sort((a, b) => b[1].y - a[1].y)
        .map(([s, value]) => `${data.strategies[s]} ends at ${value.y.toFixed(this.figure.digits)}.`)
        .join(" ");
    }

    path(x, y) {
      let text = "";
      let before = null;
      y.forEach((value, i) => {
        if (value === null) return;
        const [px, py] = [this.px(x[i]).toFixed(1), this.py(value).toFixed(1)];
        if (before === null) text += `M${px} ${py}`;
        else if (!this.figure.step) text += `L${px} ${py}`;
        else if (py !== before || i === y.length - 1 || y[i + 1] === null) text += `H${px}V${py}`;
        before = py;
      });
      return text;
    }

    band(svg, [s, y, lower, upper], shade) {
      if (!lower) return;
      const top = [];
      const bottom = [];
      this.view.x.forEach((x, i) => {
        if (y[i] === null || lower[i] === null) return;
        const px = this.px(x).toFixed(1);
        if (this.figure.step && top.length) {
          top.push(`${px} ${top[top.length - 1].split(" ")[1]}`);
          bottom.push(`${px} ${bottom[bottom.length - 1].split(" ")[1]}`);
        }
        top.push(`${px} ${this.py(upper[i]).toFixed(1)}`);
        bottom.push(`${px} ${this.py(lower[i]).toFixed(1)}`);
      });
      make("path", { class: `band fill ${colour(s)}`, d: `M${top.join("L")}L${bottom.reverse().join("L")}Z`, opacity: shade, "data-line": s }, svg);
    }

    line(svg, line, shift) {
      const [s, y] = line;
      const { x } = this.view;
      const path = make("path", { class: `line stroke ${colour(s)}`, d: this.path(x, y), "data-line": s }, svg);
      if (dash(s)) path.setAttribute("stroke-dasharray", dash(s));
      make("title", {}, path, data.strategies[s]);
      const ended = y.findLastIndex((value) => value !== null);
      const end = x.length - 1;
      if (ended < end && this.figure.step) {
        const py = this.py(y[ended]).toFixed(1);
        make("path", { class: `held stroke ${colour(s)}`, d: `M${this.px(x[ended])} ${py}H${this.px(x[end])}`, "data-line": s }, svg);
      }
      // Markers stand at different places on every line, so that lines that coincide can be told apart.
      let next = this.px(x[0]) + 12 + 90 * shift;
      for (let i = 0; i <= ended; i++) {
        const px = this.px(x[i]);
        if (y[i] === null || (px < next && ended > 3)) continue;
        make("path", { class: `marker fill ${colour(s)}`, d: marker(s), transform: `translate(${px.toFixed(1)} ${this.py(y[i]).toFixed(1)})`, "data-line": s }, svg);
        next = px + 90;
      }
    }

    ends(svg, lines, right, bottom) {
      const last = (line) => line[1].findLast((y) => y !== null);
      const order = [...lines].sort((a, b) => last(b) - last(a));
      const from = order.map((line) => Math.min(Math.max(this.py(last(line)), this.box.top), bottom));
      const places = spread([...from], 16, bottom);
      order.forEach((line, i) => {
        const s = line[0];
        const to = `${right + 12} ${places[i]}`;
        make("path", { class: `lead stroke ${colour(s)}`, d: `M${right} ${from[i]}L${to}`, "data-line": s }, svg);
        make("path", { class: `marker fill ${colour(s)}`, d: marker(s), transform: `translate(${to})`, "data-line": s }, svg);
        const end = this.figure.ends ? `  ${last(line).toFixed(this.figure.digits)}` : "";
        const text = short(data.strategies[s], 26) + end;
        make("text", { class: "end", x: right + 21, y: places[i] + 4, "data-line": s }, svg, text);
      });
    }

    point(event) {
      const frame = this.svg.getBoundingClientRect();
      const x = ((event.clientX - frame.left) / frame.width) * this.svg.viewBox.baseVal.width;
      let nearest = 0;
      this.view.x.forEach((value, i) => {
        if (Math.abs(this.px(value) - x) < Math.abs(this.px(this.view.x[nearest]) - x)) nearest = i;
      });
      this.read(nearest);
    }

    type(event) {
      const end = this.view.x.length - 1;
      const at = this.at === null ? -1 : this.at;
      const to = { ArrowRight: Math.min(end, at + 1), ArrowLeft: Math.max(0, at - 1), Home: 0, End: end, Escape: null }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.read(to);
    }

    read(at) {
      this.at = at;
      this.readout.classList.toggle("on", at !== null);
      this.cross.setAttribute("visibility", at === null ? "hidden" : "visible");
      if (at === null) return this.readout.replaceChildren();
      const x = this.px(this.view.x[at]);
      this.cross.setAttribute("x1", x);
      this.cross.setAttribute("x2", x);
      const head = document.createElement("b");
      head.textContent = `${plain(this.view.x[at])} ${this.view.label}`;
      const digits = this.figure.digits;
      const rows = this.lines
        .map((line) => [line[0], this.value(line, at)])
        .filter(([, value]) => value)
        .sort((a, b) => b[1].y - a[1].y)
        .map(([s, { y, lower, upper, held }]) => {
          const row = document.createElement("div");
          const [name, number] = [document.createElement("span"), document.createElement("span")];
          const swatch = make("svg", { class: `swatch ${colour(s)}`, width: 12, height: 12, viewBox: "-6 -6 12 12" });
          make("path", { class: "fill", d: marker(s) }, swatch);
          name.append(swatch, ` ${short(data.strategies[s], 26)}`);
          const band = typeof lower === "number" ? ` [${lower.toFixed(digits)}, ${upper.toFixed(digits)}]` : "";
          number.textContent = y.toFixed(digits) + band + (held ? " (ended)" : "");
          row.append(name, number);
          return row;
        });
      this.readout.replaceChildren(head, ...rows);
      const left = x < this.svg.viewBox.baseVal.width / 2;
      this.readout.style.left = left ? "auto" : `${this.box.left + 4}px`;
      this.readout.style.right = left ? "4px" : "auto";
    }
  }

  const charts = [...document.querySelectorAll("[data-figure]")].map((element) => new Chart(element));
  const draw = (paper) => charts.forEach((chart) => chart.draw(paper));

  function refresh() {
    for (const button of document.querySelectorAll("[data-toggle]")) {
      button.setAttribute("aria-pressed", String(!hidden.has(Number(button.dataset.toggle))));
    }
    for (const element of document.querySelectorAll("[data-strategy]")) {
      element.hidden = hidden.has(Number(element.dataset.strategy));
    }
    const all = document.getElementById("all");
    if (all) all.hidden = hidden.size === 0;
    draw();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { toggle, view } = button.dataset;
    if (toggle !== undefined) {
      const s = Number(toggle);
      if (!hidden.delete(s)) hidden.add(s);
      refresh();
    } else if (button.id === "all") {
      hidden.clear();
      refresh();
    } else if (view === "trials" || view === "seconds") {
      charts.forEach((chart) => chart.show(view)); // one switch for the page
    } else if (view !== undefined) {
      charts.find((chart) => chart.element.contains(button)).show(view);
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

  window.addEventListener("beforeprint", () => draw(PAPER));
  window.addEventListener("afterprint", () => draw());
  let width = 0;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    draw();
  }).observe(document.body);
  draw();
})();

// One chart of the page.
class Chart {
  constructor(element) {
    this.element = element;
    this.figure = data.figures[element.dataset.figure];
    this.title = element.querySelector("h3").textContent;
    this.plot = element.querySelector(".plot");
    this.key = Object.keys(this.figure.views)[0];
    this.regret = false;
    this.seeds = false;
    this.fresh = false;
    this.readout = document.createElement("div");
    this.readout.className = "readout";
    this.readout.setAttribute("aria-live", "polite");
    this.at = null;
  }

  show(key) {
    if (!(key in this.figure.views)) return;
    this.key = key;
    this.press("[data-view]", (button) => button.dataset.view === key);
    this.fresh = false;
  }

  // Sets whether the y axis shows regret, and whether each seed is drawn.
  set({ regret = this.regret, seeds = this.seeds }) {
    if (!this.figure.best) return;
    this.regret = regret;
    this.seeds = seeds;
    this.press("[data-scale]", (button) => (button.dataset.scale === "regret") === regret);
    this.press("[data-seeds]", () => seeds);
    this.fresh = false;
  }

  press(selector, pressed) {
    for (const button of this.element.querySelectorAll(selector)) button.setAttribute("aria-pressed", String(pressed(button)));
  }

  // Returns a throughput on the scale of the y axis; without a program, regret is infinite.
  scaled(y) {
    if (!this.regret || y === null) return y;
    return y > 0 ? Math.max(FLOOR, 100 * (this.figure.best / y - 1)) : Infinity;
  }

  text(y) {
    if (!this.regret) return y.toFixed(this.figure.digits);
    if (y === Infinity) return "no program";
    return y <= FLOOR ? `${FLOOR} % or less` : `${y < 1 ? y.toFixed(2) : y < 10 ? y.toFixed(1) : y.toFixed(0)} %`;
  }

  // Returns the visible lines, on the scale of the y axis.
  shown(view) {
    const lines = unpacked(this.figure, view).filter(([s, y]) => !hidden.has(s) && y.some((value) => value !== null));
    if (!this.regret) return lines;
    const scale = (edge) => edge && edge.map((y) => this.scaled(y));
    return lines
      .map(([s, y, lower, upper]) => [s, scale(y).map((r) => (r === Infinity ? null : r)), scale(upper), scale(lower)])
      .filter(([, y]) => y.some((value) => value !== null));
  }

  // Returns the ends of the y axis: those of what is shown, and of levels near it.
  ends_of(view, lines, levels) {
    const all = lines.flatMap(([, y, lower, upper]) => [...y, ...(lower || []), ...(upper || [])]).filter((y) => y !== null && y !== Infinity);
    let low = Infinity;
    let high = -Infinity;
    for (const y of all) {
      low = Math.min(low, y);
      high = Math.max(high, y);
    }
    if (low > high) [low, high] = [0, 1];
    if (this.regret) return [low / 1.25, Math.max(high, 10 * low) * 1.25];
    for (const [y] of levels) {
      if (y > high && y < 2 * high) high = y;
      if (y < low && y > low - (high - low)) low = y;
    }
    if (low > 0 && low < 0.2 * high) low = 0; // nearly the whole range: then from its beginning
    const air = 0.05 * (high - low || Math.abs(high) || 1);
    high = view.top === null ? high + air : Math.min(high + air, view.top === 1 ? 1.04 : view.top);
    low = low === 0 ? 0 : low - (low < 0 || low > air ? air : 0);
    return [view.bottom === null ? low : Math.max(low, view.bottom * 1.05), high];
  }

  size(width, lines) {
    const named = width >= 620 && data.strategies.length > 1;
    return [named, Math.round(Math.max(240, Math.min(430, width * 0.5), named ? lines * 17 + 64 : 0))];
  }

  // Reserves space for a chart that is not drawn yet.
  reserve() {
    const [, height] = this.size(Math.max(260, this.plot.clientWidth), data.strategies.length);
    this.plot.style.minHeight = `${height}px`;
  }

  draw(paper) {
    this.fresh = !paper;
    const view = this.figure.views[this.key];
    this.view = view;
    const lines = this.shown(view);
    this.lines = lines;
    const levels = view.levels.map(([y, name]) => [this.scaled(y), name]).filter(([y]) => !this.regret || y > FLOOR);
    const width = paper || Math.max(260, this.plot.clientWidth);
    this.narrow = width < 520;
    this.element.classList.toggle("narrow", this.narrow);
    const [named, height] = this.size(width, lines.length);
    this.plot.style.minHeight = "";
    const longest = Math.max(0, ...lines.map(([s]) => short(data.strategies[s], 26).length));
    const box = { left: 46, right: named ? (this.regret ? 96 : 54) + longest * 6.6 : 14, top: 20, bottom: 44 };
    const inner = { width: width - box.left - box.right, height: height - box.top - box.bottom };
    this.box = box;

    const [first, last] = [view.x[0], view.x[view.x.length - 1]];
    const from = view.log ? first : Math.min(0, first) === 0 && first < last / 4 ? 0 : first;
    const across = last > from ? last : from + 1;
    const [low, high] = this.ends_of(view, lines, levels);
    this.px = (x) => box.left + inner.width * (view.log ? Math.log(Math.max(x, from) / from) / Math.log(across / from) : (x - from) / (across - from));
    const part = (y) => (this.regret ? Math.log(y / low) / Math.log(high / low) : (y - low) / (high - low));
    this.py = (y) => box.top + inner.height * (1 - Math.min(part(y), 10));

    const quantity = this.regret ? "regret, % over the time of the best known" : view.quantity;
    const svg = make("svg", {
      viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
      "aria-label": `${this.title}: ${quantity} by ${view.label}. ${this.words(lines)} Arrow keys read values.`,
    });
    for (const y of this.regret ? logTicks(low, high, inner.height) : ticks(low, high, Math.max(3, inner.height / 55))) {
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
    make("text", { x: 2, y: 11 }, svg, quantity);

    const clip = `clip-${this.element.dataset.figure}`;
    make("rect", { x: box.left, y: box.top - 8, width: inner.width, height: inner.height + 8 }, make("clipPath", { id: clip }, svg));
    const inside = make("g", { "clip-path": `url(#${clip})` }, svg);
    this.shade(inside, view, box.top + inner.height);
    const shade = Math.min(0.16, Math.max(0.05, 0.8 / lines.length));
    if (!this.seeds) for (const line of lines) this.band(inside, line, shade);
    for (const [y] of levels) {
      make("line", { class: "level", x1: box.left, x2: box.left + inner.width, y1: this.py(y), y2: this.py(y) }, svg);
    }
    if (this.seeds) for (const trace of this.figure.traces) this.trace(inside, trace);
    lines.forEach((line, rank) => this.line(inside, line, rank / lines.length));
    levels.forEach(([y, name], place) => {
      if (y < low || y > high) return;
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

  // Draws the named stretch at the left.
  shade(svg, view, bottom) {
    if (!view.shade) return;
    const [end, name] = view.shade;
    const right = this.px(end);
    make("rect", { class: "shade", x: this.box.left, width: right - this.box.left, y: this.box.top - 8, height: bottom - this.box.top + 8 }, svg);
    make("text", { class: "level-name shade-name", x: this.box.left + 6, y: bottom - 7 }, svg, `${name}: ${plain(end)} ${view.label}`);
  }

  // Draws the runs of one strategy, a thin line for each seed.
  trace(svg, [s, runs]) {
    if (hidden.has(s)) return;
    const bySeconds = this.key === "seconds";
    const path = runs.map(([steps, parts, seconds]) => {
      let trial = 0;
      let text = "";
      parts.forEach((part, i) => {
        trial += steps[i];
        const y = this.scaled((part * this.figure.best) / data.parts);
        if (!part) return;
        const px = this.px(bySeconds ? seconds[i] : trial).toFixed(1);
        text += text ? `H${px}V${this.py(y).toFixed(1)}` : `M${px} ${this.py(y).toFixed(1)}`;
      });
      return text;
    });
    make("path", { class: `trace stroke ${colour(s)}`, d: path.join(""), "data-trace": s }, svg);
  }

  // Sorts the best first; for regret, the least.
  ranked(values) {
    return values.filter(([, value]) => value).sort((a, b) => (this.regret ? a[1].y - b[1].y : b[1].y - a[1].y));
  }

  words(lines) {
    const end = this.view.x.length - 1;
    return this.ranked(lines.map((line) => [line[0], this.value(line, end)]))
      .map(([s, value]) => `${data.strategies[s]} ends at ${this.text(value.y)}.`)
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
    // Markers are at different places on every line, so that lines that coincide are distinguishable.
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
    const order = [...lines].sort((a, b) => this.py(last(a)) - this.py(last(b))); // from the top
    const from = order.map((line) => Math.min(Math.max(this.py(last(line)), this.box.top), bottom));
    const places = spread([...from], 16, bottom);
    order.forEach((line, i) => {
      const s = line[0];
      const to = `${right + 12} ${places[i]}`;
      make("path", { class: `lead stroke ${colour(s)}`, d: `M${right} ${from[i]}L${to}`, "data-line": s }, svg);
      make("path", { class: `marker fill ${colour(s)}`, d: marker(s), transform: `translate(${to})`, "data-line": s }, svg);
      const end = this.figure.ends ? `  ${this.text(last(line))}` : "";
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
    const rows = this.ranked(this.lines.map((line) => [line[0], this.value(line, at)]))
      .map(([s, { y, lower, upper, held }]) => {
        const row = document.createElement("div");
        const [name, number] = [document.createElement("span"), document.createElement("span")];
        const swatch = make("svg", { class: `swatch ${colour(s)}`, width: 12, height: 12, viewBox: "-6 -6 12 12" });
        make("path", { class: "fill", d: marker(s) }, swatch);
        name.append(swatch, ` ${short(data.strategies[s], 26)}`);
        const band = typeof lower === "number" ? ` [${this.text(lower)}, ${this.text(upper)}]` : "";
        number.textContent = this.text(y) + band + (held ? " (ended)" : "");
        row.append(name, number);
        return row;
      });
    this.readout.replaceChildren(head, ...rows);
    const left = x < this.svg.viewBox.baseVal.width / 2;
    this.readout.style.left = left ? "auto" : `${this.box.left + 4}px`;
    this.readout.style.right = left ? "4px" : "auto";
  }
}

// Charts, drawn as SVG. Each has a text for those who cannot see it.

import { draw, make, mark, say } from "./elements.js";
import { SPAN } from "./history.js";
import * as figures from "./figures.js";

const WIDE = 600; // units of a sparkline's drawing

/** A small line without axes, of the last minute. */
export class Spark {
  constructor(holder) {
    this.area = draw("path", { class: "area" });
    this.line = draw("path", { class: "line" });
    holder.append(draw("svg", { viewBox: `0 0 ${WIDE} 40`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.area, this.line));
  }

  show(points, seconds = 60) {
    const shown = points.filter(({ age, value }) => age <= seconds && value !== null);
    if (shown.length < 2) return;
    // A short history fills the width, too.
    seconds = Math.min(seconds, Math.max(shown[0].age, 10));
    const values = shown.map(({ value }) => value);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    // A level that hardly changes is a line in the middle, not a mountain range.
    const range = Math.max(most - least, most * 0.02, 1e-9);
    const middle = (most + least) / 2;
    const place = ({ age, value }) => [WIDE * (1 - age / seconds), most === 0 ? 37 : 20 - (value - middle) / range * 30];
    const path = curve(shown.map(place));
    mark(this.line, "d", path);
    mark(this.area, "d", `${path}L${WIDE} 40L${(WIDE * (1 - shown[0].age / seconds)).toFixed(1)} 40Z`);
  }
}

const curve = (places) => places.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `number`. */
function round(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return power * [1, 2, 2.5, 5, 10].find((step) => step * power >= number * 0.999999);
}

/** A line over the last five minutes, with axes and a value under the pointer. */
export class Timeline {
  #points = [];
  #format = figures.count;
  #hover = null;

  constructor(holder) {
    this.holder = holder;
    this.rules = draw("g");
    this.area = draw("path", { class: "area" });
    this.line = draw("path", { class: "line" });
    this.cursor = draw("g", { visibility: "hidden" }, draw("line", { class: "cursor" }), draw("circle", { class: "spot", r: 4 }));
    this.svg = draw("svg", { role: "img" }, this.rules, this.area, this.line, this.cursor);
    this.tip = make("div", { class: "tip", hidden: true });
    holder.append(this.svg, this.tip);
    holder.addEventListener("pointermove", (event) => { this.#hover = event.offsetX; this.#point(); });
    holder.addEventListener("pointerleave", () => { this.#hover = null; this.#point(); });
    new ResizeObserver(() => this.#draw()).observe(holder);
  }

  show(name, points, format) {
    this.#points = points;
    this.#format = format;
    const values = points.map(({ value }) => value);
    const text = values.length === 0 ? `${name}: no samples yet` :
      `${name} over the last five minutes: now ${format(values.at(-1))}, at least ${format(Math.min(...values))}, at most ${format(Math.max(...values))}`;
    mark(this.svg, "aria-label", text);
    this.#draw();
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.holder;
    if (!width || !height) return;
    const top = round(Math.max(...this.#points.map(({ value }) => value), 1e-9) * 1.08 || 1);
    const steps = 4;
    const labels = Array.from({ length: steps + 1 }, (_, at) => figures.count(top * at / steps));
    // The axis grows with the history, up to the span of the chart.
    const oldest = this.#points[0]?.age ?? 0;
    const span = [60, 120, SPAN].find((span) => oldest <= span) ?? SPAN;
    const left = Math.max(...labels.map((label) => label.length)) * 6.4 + 10;
    const [right, above, below] = [width - 6, 8, height - 22];
    const x = (age) => right - (right - left) * Math.min(age, span) / span;
    const y = (value) => below - (below - above) * value / top;
    this.place = { x, y, left, right, above, below };
    mark(this.svg, "viewBox", `0 0 ${width} ${height}`);
    const parts = width < 420 ? 2 : span === SPAN ? 5 : 4;
    const ages = Array.from({ length: parts + 1 }, (_, at) => span - span * at / parts);
    this.rules.replaceChildren(
      ...labels.flatMap((label, at) => {
        const level = y(top * at / steps);
        return [draw("line", { class: "rule", x1: left, x2: right, y1: level, y2: level }),
          draw("text", { class: "tick", x: left - 8, y: level + 4, "text-anchor": "end" }, label)];
      }),
      ...ages.map((age) => draw("text", { class: "tick", x: x(age), y: height - 4, "text-anchor": age === 0 ? "end" : age === span ? "start" : "middle" },
        age === 0 ? "now" : age % 60 === 0 || age > 120 ? `−${age / 60} min` : `−${age} s`)),
    );
    const shown = this.#points.filter(({ age }) => age <= span);
    const path = curve(shown.map(({ age, value }) => [x(age), y(value)]));
    mark(this.line, "d", path);
    mark(this.area, "d", shown.length > 1 ? `${path}L${x(0)} ${below}L${x(shown[0].age)} ${below}Z` : "");
    this.#point();
  }

  #point() {
    const { x, y, above, below } = this.place ?? {};
    const near = this.#hover === null || !x ? null : this.#points.reduce((best, point) =>
      !best || Math.abs(x(point.age) - this.#hover) < Math.abs(x(best.age) - this.#hover) ? point : best, null);
    mark(this.cursor, "visibility", near ? "visible" : "hidden");
    this.tip.hidden = !near;
    if (!near) return;
    const [at, level] = [x(near.age), y(near.value)];
    const [line, spot] = this.cursor.children;
    for (const [name, value] of Object.entries({ x1: at, x2: at, y1: above, y2: below })) mark(line, name, String(value));
    mark(spot, "cx", String(at));
    mark(spot, "cy", String(level));
    say(this.tip, `${this.#format(near.value)} · ${near.age < 1 ? "now" : `${Math.round(near.age)} s ago`}`);
    const { offsetWidth } = this.tip;
    this.tip.style.left = `${Math.max(0, Math.min(at - offsetWidth / 2, this.holder.clientWidth - offsetWidth))}px`;
  }
}

/** Bars by time of requests, on a logarithmic axis. */
export class Histogram {
  constructor(holder) {
    this.holder = holder;
    this.svg = draw("svg", { role: "img" });
    this.nothing = make("p", { class: "empty" }, "No requests in the last minute");
    holder.append(this.svg, this.nothing);
    new ResizeObserver(() => this.#draw()).observe(holder);
  }

  /** Shows counts, with lines at `quantiles`, each a name and a time. */
  show(counts, bounds, text, quantiles) {
    this.shown = { counts, bounds, quantiles };
    mark(this.svg, "aria-label", text);
    this.#draw();
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.holder;
    if (!this.shown || !width) return;
    const { counts, bounds, quantiles } = this.shown;
    const most = Math.max(...counts);
    this.nothing.hidden = most > 0;
    this.svg.classList.toggle("none", most === 0);
    if (most === 0) return this.svg.replaceChildren();
    mark(this.svg, "viewBox", `0 0 ${width} ${height}`);
    const filled = counts.map((count, at) => count > 0 ? at : -1).filter((at) => at >= 0);
    // Whole powers of two, and at least ten of them, so that few requests do not fill the chart with one bar.
    let [first, last] = [Math.max(0, filled[0] - 2), Math.min(counts.length - 1, filled.at(-1) + 2)];
    const lack = Math.max(0, 32 - (last - first));
    [first, last] = [Math.max(0, first - (lack >> 1)), Math.min(counts.length - 1, last + (lack + 1 >> 1))];
    const step = width / (last - first + 1);
    const below = height - 22;
    const bars = counts.slice(first, last + 1).map((count, at) => {
      const tall = count === 0 ? 0 : Math.max(2, (below - 20) * count / most);
      return draw("rect", { class: "bucket", x: at * step + 1, y: below - tall, width: Math.max(1, step - 2), height: tall, rx: Math.min(2, step / 4) });
    });
    const place = (time) => {
      const end = bounds.findIndex((bound) => bound >= time * 0.999);
      if (end < 0) return null;
      const start = bounds[end - 1] ?? 0;
      return (end - first + (time - start) / (bounds[end] - start)) * step;
    };
    const ticks = [];
    for (const [name, time] of quantiles) {
      const x = place(time);
      if (x === null) continue;
      ticks.push(draw("line", { class: "quantile", x1: x, x2: x, y1: 14, y2: below }),
        draw("text", { class: "tick", x, y: 9, "text-anchor": x > width - 20 ? "end" : "middle" }, name));
    }
    for (let power = -5; power <= 1; power += 1) {
      const x = place(10 ** power);
      if (x === null || x < 14 || x > width - 14) continue;
      ticks.push(draw("line", { class: "rule", x1: x, x2: x, y1: below, y2: below + 4 }),
        draw("text", { class: "tick", x, y: height - 4, "text-anchor": "middle" }, figures.time(10 ** power)));
    }
    this.svg.replaceChildren(draw("line", { class: "rule", x1: 0, x2: width, y1: below, y2: below }), ...bars, ...ticks);
  }
}

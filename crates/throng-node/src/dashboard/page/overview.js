// The upper half of the page: headline figures, throughput, latency, workers and durable state.

import { Histogram, Spark, Timeline } from "./charts.js";
import { byId, make, mark, roam, say, showFacts } from "./elements.js";
import * as figures from "./figures.js";
import { quantile, ready, requests, turns } from "./history.js";

const SERIES = [
  { id: "turns", name: "Turns", points: (history) => history.rates(turns), format: figures.rate },
  { id: "requests", name: "Requests", points: (history) => history.rates(requests), format: figures.rate },
  { id: "batches", name: "Writes", points: (history) => history.rates((s) => s.durable?.batches ?? 0), format: figures.rate },
  { id: "processes", name: "Processes", points: (history) => history.levels((s) => s.metrics.processes), format: figures.count },
];

/** Tiles: name, value in parts, note, and the points of the sparkline. */
const TILES = [
  {
    id: "processes", name: "Processes",
    value: ({ last }) => figures.countParts(last.metrics.processes),
    note: (history) => `spawned ${figures.rate(history.rate((s) => s.metrics.spawned) ?? 0)} · exited ${figures.rate(history.rate((s) => s.metrics.exited) ?? 0)}`,
    points: (history) => history.levels((s) => s.metrics.processes),
  },
  {
    id: "turns", name: "Turns per second",
    value: (history) => figures.countParts(history.rate(turns) ?? 0),
    note: ({ last }) => `${figures.count(ready(last))} waiting for a worker`,
    points: (history) => history.rates(turns),
  },
  {
    id: "requests", name: "Requests per second",
    value: (history) => figures.countParts(history.rate(requests) ?? 0),
    note: ({ last }) => `${figures.count(requests(last))} since the start`,
    points: (history) => history.rates(requests),
  },
  {
    id: "latency", name: "Latency, 99 %",
    value: (history, { bounds }) => {
      const slow = quantile(history.requests(), bounds, 0.99);
      return slow === null ? { digits: "–", unit: "" } : figures.timeParts(slow);
    },
    note: ({ last }) => `last minute · ${figures.count(last.answers[4])} errors (5xx)`,
    points: () => [],
  },
  {
    id: "mailboxes", name: "Mailboxes",
    value: ({ last }) => figures.byteParts(last.metrics.mailbox_bytes),
    note: ({ last: { metrics } }) => `${figures.percent(metrics.mailbox_bytes / Math.max(1, metrics.mailbox_bytes_limit))} of ${figures.bytes(metrics.mailbox_bytes_limit)}`,
    points: (history) => history.levels((s) => s.metrics.mailbox_bytes),
  },
  {
    id: "memory", name: "Memory",
    value: ({ last }) => last.rss_bytes === null ? { digits: "–", unit: "" } : figures.byteParts(last.rss_bytes),
    note: ({ last }) => last.rss_bytes === null ? "unknown on this system" : `processes take ${figures.bytes(last.metrics.memory_bytes)}`,
    points: (history) => history.levels((s) => s.rss_bytes),
  },
];

export class Overview {
  #series = SERIES[0];
  #p99 = [];

  constructor() {
    this.bounds = [];
    this.tiles = TILES.map((tile) => this.#tile(tile));
    this.timeline = new Timeline(byId("throughput"));
    this.histogram = new Histogram(byId("histogram"));
    const buttons = SERIES.map((series) => make("button", {
      type: "button", role: "radio", "aria-checked": "false", "data-series": series.id,
      onclick: () => this.#choose(series),
    }, series.name));
    byId("series").append(...buttons);
    roam(byId("series"), "button", (button) => button.click());
    this.#choose(this.#series);
  }

  #tile(tile) {
    const value = make("p", { class: "value" }, make("span", { class: "digits" }), make("span", { class: "unit" }));
    const note = make("p", { class: "note" });
    const spark = make("div", { class: "spark" });
    byId("tiles").append(make("article", { class: "tile", id: `tile-${tile.id}` }, make("h3", {}, tile.name), value, note, spark));
    return { ...tile, digits: value.firstElementChild, unit: value.lastElementChild, noteLine: note, spark: new Spark(spark) };
  }

  #choose(series) {
    this.#series = series;
    for (const button of byId("series").children) {
      const isChosen = button.dataset.series === series.id;
      mark(button, "aria-checked", String(isChosen));
      button.tabIndex = isChosen ? 0 : -1;
    }
    if (this.history?.last) this.#showThroughput(this.history);
  }

  show(history) {
    this.history = history;
    this.#showLatency(history);
    for (const tile of this.tiles) {
      const { digits, unit } = tile.value(history, this);
      say(tile.digits, digits);
      say(tile.unit, unit);
      say(tile.noteLine, tile.note(history));
      tile.spark.show(tile.id === "latency" ? this.#p99 : tile.points(history));
    }
    this.#showThroughput(history);
    this.#showWorkers(history);
    this.#showDurable(history);
    this.#showDropped(history);
  }

  #showThroughput(history) {
    const { name, points, format } = this.#series;
    this.timeline.show(name, points(history), format);
  }

  #showLatency(history) {
    const counts = history.requests();
    const values = [0.5, 0.9, 0.99, 0.999].map((share) => quantile(counts, this.bounds, share));
    const names = ["50 %", "90 %", "99 %", "99.9 %"];
    const list = byId("percentiles");
    if (list.children.length === 0) list.append(...names.map((name) => make("div", {}, make("dt", {}, name), make("dd"))));
    values.forEach((value, at) => say(list.children[at].lastElementChild, value === null ? "–" : figures.time(value)));
    const text = values[0] === null ? "No requests in the last minute" :
      `Times of requests in the last minute: ${names.map((name, at) => `${name} below ${figures.time(values[at])}`).join(", ")}`;
    this.histogram.show(counts, this.bounds, text, [[names[0], values[0]], [names[2], values[2]]]);
    const uptime = history.last.metrics.uptime_seconds;
    const recent = quantile(history.requests(5), this.bounds, 0.99);
    this.#p99.push({ uptime, value: history.length > 1 ? recent : null });
    this.#p99 = this.#p99.filter((point) => point.uptime <= uptime && uptime - point.uptime < 90);
    for (const point of this.#p99) point.age = uptime - point.uptime;
  }

  #showWorkers(history) {
    const first = history.since(3);
    const { workers, injected } = history.last.metrics;
    const took = history.age(first);
    const list = byId("workers");
    while (list.children.length > workers.length) list.lastElementChild.remove();
    let busyAll = 0;
    workers.forEach((worker, at) => {
      const before = first.metrics.workers[at];
      const share = took > 0 && before ? Math.min(1, Math.max(0, (worker.busy_seconds - before.busy_seconds) / took)) : 0;
      busyAll += share;
      if (!list.children[at]) {
        list.append(make("li", {}, make("span"), make("span", { class: "share" }), make("div", { class: "track", "aria-hidden": "true" }, make("div", { class: "fill" }))));
      }
      const [name, value, track] = list.children[at].children;
      say(name, worker.spare ? `Spare ${at}` : `Worker ${at}`);
      say(value, figures.percent(share));
      track.firstElementChild.style.width = `${share * 100}%`;
    });
    say(byId("workers-aside"), `${figures.percent(busyAll / Math.max(1, workers.filter((worker) => !worker.spare).length))} busy`);
    const sum = (field) => (sample) => sample.metrics.workers.reduce((sum, worker) => sum + worker[field], 0);
    const stuck = sum("stuck_turns")(history.last);
    showFacts(byId("scheduling"), [
      ["Run queues", figures.count(sum("queued")(history.last)), `+ ${figures.count(injected)} shared`],
      ["Turns of outside callers", figures.rate(history.rate((s) => s.metrics.guest_turns) ?? 0)],
      ["Steals", figures.rate(history.rate(sum("steals")) ?? 0)],
      ["Sleeps", figures.rate(history.rate(sum("parks")) ?? 0)],
      ["Turns that blocked a worker", figures.count(stuck)],
      ["Panics", figures.count(history.last.metrics.panicked)],
      ["Dropped messages", figures.count(history.last.metrics.dropped)],
    ]);
  }

  #showDropped({ last: { dropped } }) {
    const card = byId("dropped");
    card.hidden = dropped.letters.length === 0;
    if (card.hidden) return;
    say(byId("dropped-aside"), dropped.missed > 0 ? `and ${figures.count(dropped.missed)} not listed` : "while this page is open");
    const head = make("tr", {}, ...["Process", "Message", "Reason", "Messages"].map((name) => make("th", { scope: "col", class: name === "Messages" ? "number" : "" }, name)));
    const rows = dropped.letters.toReversed().map(({ process, message, reason, messages }) => make("tr", {},
      make("td", { class: "title", title: process }, figures.shortType(process)),
      make("td", { class: "title", title: message }, figures.shortType(message)),
      make("td", {}, reason.replaceAll("_", " ")),
      make("td", { class: "number" }, figures.count(messages))));
    byId("dropped-letters").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  #showDurable(history) {
    const { durable, has_store } = history.last;
    if (!has_store) {
      say(byId("durable-aside"), "this program has no durable processes");
      return;
    }
    say(byId("durable-aside"), !durable ? "the store cannot be read at the moment" : durable.writable ? "" : "the store takes no writes");
    byId("durable-aside").classList.toggle("alert", !durable?.writable);
    if (!durable) return;
    const of = (field) => (sample) => sample.durable?.[field] ?? 0;
    const split = byId("entities");
    if (split.children.length === 0) split.append(make("div"), make("div"));
    const all = Math.max(1, durable.live + durable.at_rest);
    split.children[0].style.width = `${durable.live / all * 100}%`;
    split.children[1].style.width = `${durable.at_rest / all * 100}%`;
    mark(split, "aria-label", `${durable.live} entities live, ${durable.at_rest} at rest`);
    const legend = byId("entities-legend");
    if (legend.children.length === 0) {
      legend.append(...["Live", "At rest"].map((name) => make("div", {}, make("dt", {}, name), make("dd"))));
    }
    say(legend.children[0].lastElementChild, figures.count(durable.live));
    say(legend.children[1].lastElementChild, figures.count(durable.at_rest));
    showFacts(byId("entity-facts"), [
      ["Activations", figures.rate(history.rate(of("activations")) ?? 0)],
      ["Passivations", figures.rate(history.rate(of("passivations")) ?? 0)],
      ["Memory of live entities", figures.bytes(durable.live_bytes)],
      ...durable.stored.slice(0, 5).map(([kind, stored]) => [`Stored: ${kind}`, figures.count(stored)]),
    ]);
    const group = history.ratio(of("batches"), of("commits"));
    const flush = history.ratio(of("flush_seconds"), of("commits"));
    const checkpoint = durable.checkpoints > 0 ? durable.checkpoint_seconds / durable.checkpoints : null;
    showFacts(byId("store-facts"), [
      ["Writes", figures.rate(history.rate(of("batches")) ?? 0)],
      ["Group commits", figures.rate(history.rate(of("commits")) ?? 0)],
      ["Writes per commit", group === null ? "–" : group.toFixed(1)],
      ["Flush", flush === null ? "–" : figures.time(flush), "mean"],
      ["Log", figures.bytes(durable.log_bytes)],
      ["Memtable", figures.bytes(durable.memory_bytes)],
      ["Checkpoint", durable.checkpointing ? "running" : "idle"],
      ["Checkpoint takes", checkpoint === null ? "–" : figures.time(checkpoint), `mean of ${figures.count(durable.checkpoints)}`],
      ["Data file", figures.bytes(durable.file_bytes), `of ${figures.bytes(durable.map_bytes)}`],
      ["Records", figures.count(durable.entries)],
      ["Oldest snapshot", `${figures.count(durable.snapshot_lag_commits)}`, "behind"],
      ["Recoveries", figures.count(durable.recoveries)],
    ]);
  }
}

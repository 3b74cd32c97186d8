// The lower half of the page: processes, their supervision and their kinds, and one process in full.

import { Spark } from "./charts.js";
import { byId, make, mark, roam, say, showFacts } from "./elements.js";
import { Entities } from "./entities.js";
import * as figures from "./figures.js";

const REFRESH = 2_000;
const ROWS = 50;
const KINDS = 500;
const TREE_ROWS = 500;
const DEPTH_SHOWN = 5;

const COLUMNS = [
  { name: "Process", text: null },
  { name: "Pid", className: "mono wide", text: (p) => p.pid ?? "" },
  { name: "State", text: (p) => p.state ?? "", className: "wide" },
  { name: "Mailbox", by: "mailbox_len", number: (p) => p.mailbox_len, text: (p) => figures.count(p.mailbox_len) },
  { name: "Bytes", by: "mailbox_bytes", number: (p) => p.mailbox_bytes, text: (p) => figures.bytes(p.mailbox_bytes), className: "wide" },
  { name: "Memory", by: "memory", number: (p) => p.memory_bytes, text: (p) => figures.bytes(p.memory_bytes), className: "wide" },
  { name: "Turns", by: "turns", number: (p) => p.turns, text: (p) => p.turns === null ? "–" : figures.count(p.turns) },
  { name: "Longest turn", by: "longest_turn", number: (p) => p.longest_turn_seconds, text: (p) => p.longest_turn_seconds === null ? "–" : figures.time(p.longest_turn_seconds) },
];

/** A mailbox of this many messages is a hot spot. */
const HOT = 100;

/** The sums of a kind, in the columns of a process. */
const asRow = (sums) => ({ ...sums, kind: sums.kind ?? "unknown" });

function title(process) {
  const { title, more } = figures.titles(process);
  return [make("span", { class: "name" }, title), make("span", { class: "kind" }, more)];
}

export class Inspector {
  #tab = "top";
  #by = "mailbox_len";
  #filter = "";
  #offset = 0;
  #isByKind = false;
  #timer = null;
  #collapsed = new Map();
  #kindsBefore = null;
  #kinds = new Map();

  constructor(ask) {
    this.ask = ask;
    this.details = new Details(ask, (kind) => this.#kinds.get(kind));
    this.entities = new Entities(ask);
    this.#buildTop();
    byId("panel-tree").append(make("div", { role: "tree", "aria-label": "Processes below the processes that spawned them", onkeydown: (event) => this.#treeKey(event) }));
    const tabs = document.querySelector("[role=tablist]");
    for (const tab of tabs.children) tab.addEventListener("click", () => this.#choose(tab.id.slice("tab-".length)));
    roam(tabs, "[role=tab]", (tab) => tab.click());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.refresh(); });
  }

  #choose(tab) {
    this.#tab = tab;
    for (const name of ["top", "tree", "kinds", "entities"]) {
      mark(byId(`tab-${name}`), "aria-selected", String(name === tab));
      byId(`tab-${name}`).tabIndex = name === tab ? 0 : -1;
      byId(`panel-${name}`).hidden = name !== tab;
    }
    say(byId("inspector-aside"), "");
    if (tab === "entities") this.entities.show();
    this.refresh();
  }

  /** Asks for the chosen view now, and again after a while. */
  async refresh() {
    clearTimeout(this.#timer);
    const tab = this.#tab;
    if (!document.hidden) {
      try {
        // Kinds are asked for with each view, because a process's details show its kind's times.
        const kinds = await this.ask({ get: "kinds", limit: 200 });
        this.#takeKinds(kinds.kinds ?? []);
        if (tab === "top") {
          const request = this.#request();
          const answer = await this.ask(request);
          const isWanted = JSON.stringify(request) === JSON.stringify(this.#request());
          if (isWanted) this.#showTop(answer.top ?? (answer.sums ?? []).map(asRow));
        } else if (tab === "tree") {
          this.#showTree((await this.ask({ get: "tree", limit: TREE_ROWS })).tree ?? []);
        } else if (tab === "kinds") {
          this.#showKinds();
        }
      } catch { /* the connection's state is shown above; the next round asks again */ }
    }
    if (tab !== this.#tab) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), REFRESH);
  }

  stop() {
    clearTimeout(this.#timer);
    this.details.close();
  }

  #request() {
    const what = { by: this.#by, filter: this.#filter };
    if (this.#isByKind) return { get: "sums", limit: KINDS, ...what };
    return { get: "top", limit: ROWS, offset: this.#offset, ...what };
  }

  /** Changes what the table shows. */
  #change() {
    mark(byId("by-kind"), "aria-pressed", String(this.#isByKind));
    this.rows.replaceChildren();
    this.refresh();
  }

  #page(by) {
    this.#offset = Math.max(0, this.#offset + by);
    this.#change();
  }

  #find(filter, isByKind) {
    [this.#filter, this.#isByKind, this.#offset] = [filter, isByKind, 0];
    this.#change();
  }

  #buildBar() {
    const filter = make("input", {
      type: "search", id: "filter", placeholder: "Filter", maxlength: "200", autocomplete: "off", spellcheck: "false",
      "aria-label": "Filter by kind, label or name", oninput: () => this.#find(filter.value, this.#isByKind),
    });
    const button = (id, text, onclick, rest) => make("button", { type: "button", class: "quiet", id, onclick, ...rest }, text);
    byId("panel-top").append(make("div", { class: "find" }, filter,
      button("by-kind", "Group by kind", () => this.#find(this.#filter, !this.#isByKind), { "aria-pressed": "false" }),
      button("previous", "Previous", () => this.#page(-ROWS), { disabled: true }),
      button("next", "Next", () => this.#page(ROWS), { disabled: true })));
  }

  #open(key) {
    if (!this.#isByKind) return this.details.open(key);
    byId("filter").value = key;
    this.#find(key, false);
  }

  #buildTop() {
    this.#buildBar();
    const heads = COLUMNS.map((column) => {
      const className = `${column.by ? "number " : ""}${(column.className ?? "").replace("mono", "")}`;
      if (!column.by) return make("th", { scope: "col", class: className }, column.name);
      return make("th", { scope: "col", class: className, "data-by": column.by },
        make("button", { type: "button", onclick: () => this.#sort(column.by) }, column.name));
    });
    this.rows = make("tbody", { onkeydown: (event) => this.#rowKey(event) });
    byId("panel-top").append(make("table", { "aria-label": "Processes with the largest values of the sorted column" },
      make("thead", {}, make("tr", {}, ...heads)), this.rows));
    this.#markSort();
  }

  #sort(by) {
    [this.#by, this.#offset] = [by, 0];
    this.#markSort();
    this.#change();
  }

  #markSort() {
    for (const head of document.querySelectorAll("#panel-top th[data-by]")) {
      if (head.dataset.by === this.#by) head.setAttribute("aria-sort", "descending");
      else head.removeAttribute("aria-sort");
    }
  }

  #showTop(processes) {
    const known = new Map([...this.rows.children].map((row) => [row.dataset.key, row]));
    // A row under the pointer or in focus must not be moved away from its reader.
    const isHeld = this.rows.matches(":hover") || this.rows.contains(document.activeElement);
    const rows = processes.map((process) => this.#row(process, known.get(process.pid ?? process.kind)));
    byId("previous").disabled = this.#isByKind || this.#offset === 0;
    byId("next").disabled = this.#isByKind || processes.length < ROWS;
    if (isHeld && known.size > 0) return;
    this.rows.replaceChildren(...rows);
    const hot = processes.filter((process) => process.mailbox_len >= HOT).length;
    const range = this.#isByKind ? `${processes.length} ${processes.length === 1 ? "kind" : "kinds"}` : `${Math.min(processes.length, 1) + this.#offset}–${this.#offset + processes.length}`;
    say(byId("inspector-aside"), hot > 0 ? `${range}, ${hot} with ${HOT} messages or more waiting` : range);
  }

  #row(process, known) {
    const row = known ?? make("tr", { tabindex: "0", "data-key": process.pid ?? process.kind, onclick: () => this.#open(row.dataset.key) },
      ...COLUMNS.map((column) => make("td", { class: column.text === null ? "title" : `${column.by ? "number " : ""}${column.className ?? ""}` })));
    COLUMNS.forEach((column, at) => {
      const cell = row.children[at];
      if (column.text === null) {
        const shown = JSON.stringify(figures.titles(process));
        if (cell.dataset.shown !== shown) cell.replaceChildren(...title(process));
        cell.dataset.shown = shown;
        return;
      }
      if (column.name === "State") {
        mark(cell, "data-state", process.state ?? "none");
        if (cell.children.length === 0) cell.append(make("span", { class: "dot", "aria-hidden": "true" }), make("span"));
        cell.firstElementChild.hidden = !process.state;
        return say(cell.lastElementChild, column.text(process));
      }
      say(cell, column.text(process));
      if (column.number) cell.classList.toggle("zero", !column.number(process));
      if (column.by === "mailbox_len") cell.classList.toggle("hot", process.mailbox_len >= HOT);
    });
    return row;
  }

  #rowKey(event) {
    const row = event.target.closest("tr");
    if (event.key === "Enter") this.#open(row.dataset.key);
    const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }

  #showTree(rows) {
    const tree = byId("panel-tree").firstElementChild;
    say(byId("inspector-aside"), `${rows.length} shown`);
    if (rows.length === 0) {
      tree.replaceChildren(make("p", { class: "message" }, "No process has a parent."));
      return;
    }
    const focused = tree.contains(document.activeElement) ? document.activeElement.dataset.pid : null;
    let hiddenBelow = Infinity;
    const items = rows.map((row, at) => {
      const hasChildren = (rows[at + 1]?.depth ?? 0) > row.depth;
      if (row.depth <= hiddenBelow) hiddenBelow = Infinity;
      const isHidden = row.depth > hiddenBelow;
      const isCollapsed = this.#collapsed.get(row.pid) ?? row.depth >= 1;
      if (hasChildren && isCollapsed && !isHidden) hiddenBelow = row.depth;
      return make("div", {
        role: "treeitem", class: "node", tabindex: "-1", "data-pid": row.pid, hidden: isHidden,
        "aria-level": String(Math.min(row.depth, DEPTH_SHOWN) + 1),
        "aria-expanded": hasChildren ? String(!isCollapsed) : undefined,
        onclick: (event) => event.target.closest(".twig") && hasChildren ? this.#toggle(row.pid, !isCollapsed) : this.details.open(row.pid),
      }, make("span", { class: "twig", "aria-hidden": "true" }, hasChildren ? "›" : ""),
      make("span", { class: "label" }, ...title(row)),
      row.children > 0 ? make("span", { class: "badge" }, `${figures.count(row.children)} ${row.children === 1 ? "child" : "children"}`) : null,
      make("span", { class: "mono wide" }, row.pid));
    });
    tree.replaceChildren(...items);
    const first = items.find((item) => item.dataset.pid === focused && !item.hidden) ?? items[0];
    first.tabIndex = 0;
    if (focused) first.focus();
    this.tree = rows;
  }

  #toggle(pid, isCollapsed) {
    this.#collapsed.set(pid, isCollapsed);
    this.#showTree(this.tree);
  }

  #treeKey(event) {
    const item = event.target.closest("[role=treeitem]");
    if (!item) return;
    const shown = [...item.parentElement.querySelectorAll("[role=treeitem]:not([hidden])")];
    const at = shown.indexOf(item);
    const expanded = item.getAttribute("aria-expanded");
    const parent = shown.slice(0, at).findLast((other) => Number(other.ariaLevel) < Number(item.ariaLevel));
    const go = (to) => to && (shown.forEach((other) => { other.tabIndex = other === to ? 0 : -1; }), to.focus());
    const actions = {
      ArrowDown: () => go(shown[at + 1]),
      ArrowUp: () => go(shown[at - 1]),
      Home: () => go(shown[0]),
      End: () => go(shown.at(-1)),
      ArrowRight: () => expanded === "false" ? this.#toggle(item.dataset.pid, false) : expanded === "true" && go(shown[at + 1]),
      ArrowLeft: () => expanded === "true" ? this.#toggle(item.dataset.pid, true) : go(parent),
      Enter: () => this.details.open(item.dataset.pid),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  /** Makes rates of two answers. The answers hold no time of the node, so the time of arrival serves. */
  #takeKinds(kinds) {
    const now = performance.now();
    const before = this.#kindsBefore;
    const took = before ? (now - before.now) / 1000 : 0;
    for (const kind of kinds) {
      const last = before?.kinds.get(kind.process);
      const grown = (field) => last && took > 0 ? Math.max(0, kind[field] - last[field]) / took : null;
      this.#kinds.set(kind.process, { ...kind, turnRate: grown("turns"), busyShare: grown("busy_seconds") });
    }
    // Two answers close together would make rates of almost nothing.
    if (!before || took > 1.5) this.#kindsBefore = { now, kinds: new Map(kinds.map((kind) => [kind.process, kind])) };
  }

  #showKinds() {
    const kinds = [...this.#kinds.values()].sort((one, other) => (other.busyShare ?? 0) - (one.busyShare ?? 0) || other.busy_seconds - one.busy_seconds);
    const panel = byId("panel-kinds");
    say(byId("inspector-aside"), `${kinds.length} kinds`);
    if (kinds.length === 0) return panel.replaceChildren(make("p", { class: "message" }, "This node does not count by kind of process."));
    const most = Math.max(...kinds.map((kind) => kind.busyShare ?? 0), 1e-9);
    const heads = [["Kind", ""], ["Live", "number"], ["Turns", "number"], ["Workers busy", "number"], ["Mean turn", "number"], ["Spawned", "number wide"], ["Panics", "number wide"], ["Dropped", "number wide"]];
    const rows = kinds.map((kind) => {
      const fill = make("div", { class: "fill" });
      fill.style.width = `${(kind.busyShare ?? 0) / most * 100}%`;
      const cells = [
        [make("span", {}, ...title({ kind: kind.kind, type: kind.process })), "title"],
        [figures.count(kind.processes), "number"],
        [kind.turnRate === null ? "–" : figures.rate(kind.turnRate), "number"],
        [make("span", {}, make("span", { class: "track meter wide", "aria-hidden": "true" }, fill), kind.busyShare === null ? "–" : figures.percent(kind.busyShare)), "number"],
        [kind.turns > 0 ? figures.time(kind.busy_seconds / kind.turns) : "–", "number"],
        [figures.count(kind.spawned), "number wide"],
        [figures.count(kind.panicked), kind.panicked > 0 ? "number wide hot" : "number wide zero"],
        [figures.count(kind.dropped), kind.dropped > 0 ? "number wide hot" : "number wide zero"],
      ];
      return make("tr", {}, ...cells.map(([content, className]) => make("td", { class: className }, content)));
    });
    panel.replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, ...heads.map(([name, className]) => make("th", { scope: "col", class: className }, name)))),
      make("tbody", {}, ...rows)));
  }
}

/** One process in full, in a panel at the side. */
class Details {
  #pid = null;
  #path = [];
  #timer = null;

  constructor(ask, kindOf) {
    this.ask = ask;
    this.kindOf = kindOf;
    this.dialog = byId("process");
    byId("process-close").addEventListener("click", () => this.close());
    byId("process-back").addEventListener("click", () => this.#show(this.#path.pop()));
    this.dialog.addEventListener("close", () => { clearTimeout(this.#timer); this.#pid = null; this.#path = []; });
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.close(); });
  }

  open(pid) {
    if (this.#pid) this.#path.push(this.#pid);
    this.#show(pid);
    if (!this.dialog.open) this.dialog.showModal();
  }

  close() { this.dialog.close(); }

  #show(pid) {
    this.#pid = pid;
    byId("process-back").hidden = this.#path.length === 0;
    say(byId("process-title"), "…");
    say(byId("process-pid"), pid);
    this.#build();
    byId("process-title").focus();
    this.#refresh();
  }

  #build() {
    this.state = make("p", { class: "pill" }, make("span", { class: "dot", "aria-hidden": "true" }), make("span"));
    this.big = make("dl", { class: "big" });
    const spark = make("div", { class: "chart spark" });
    this.mailbox = [];
    this.spark = new Spark(spark);
    this.facts = make("dl", { class: "facts" });
    this.times = make("dl", { class: "facts" });
    this.lists = make("div");
    byId("process-body").replaceChildren(this.state, this.big, make("h3", {}, "Mailbox, last minute"), spark,
      this.facts, make("h3", {}, "Where its time goes"), this.times, this.lists);
  }

  async #refresh() {
    clearTimeout(this.#timer);
    const pid = this.#pid;
    let isGone = false;
    try {
      const { info, error } = await this.ask({ get: "info", pid });
      if (pid !== this.#pid) return;
      if (info) this.#update(info);
      isGone = error?.kind === "no_process";
      if (isGone) this.#setState("exited", "exited");
    } catch { /* asked again below */ }
    if (!isGone && pid === this.#pid) this.#timer = setTimeout(() => this.#refresh(), 1000);
  }

  #setState(state, text) {
    mark(this.state, "data-state", state);
    say(this.state.lastElementChild, text);
    if (byId("process-title").textContent === "…") say(byId("process-title"), "No such process");
  }

  #update(info) {
    say(byId("process-title"), figures.titles(info).title);
    this.#setState(info.state, info.handler ? `${info.state} in ${info.handler}` : info.state);
    const big = [["Mailbox", figures.count(info.mailbox_len)], ["Turns", info.turns === null ? "–" : figures.count(info.turns)], ["Memory", figures.bytes(info.memory_bytes)]];
    if (this.big.children.length === 0) this.big.append(...big.map(([name]) => make("div", {}, make("dt", {}, name), make("dd"))));
    big.forEach(([, value], at) => say(this.big.children[at].lastElementChild, value));
    const now = performance.now() / 1000;
    this.mailbox.push({ at: now, value: info.mailbox_len });
    this.mailbox = this.mailbox.filter(({ at }) => now - at <= 60);
    this.spark.show(this.mailbox.map(({ at, value }) => ({ age: now - at, value })));
    showFacts(this.facts, [
      ["Type", info.type ?? "unknown"],
      ...(info.label ? [["Label", info.label]] : []),
      ...(info.names.length > 0 ? [["Names", info.names.join(", ")]] : []),
      ["Bytes in the mailbox", figures.bytes(info.mailbox_bytes)],
      ["Traps exits", info.traps_exits ? "yes" : "no"],
    ]);
    const ofKind = this.kindOf(info.type);
    const mean = ofKind && ofKind.turns > 0 ? ofKind.busy_seconds / ofKind.turns : null;
    showFacts(this.times, [
      ["Longest turn", info.longest_turn_seconds === null ? "below 10 ms" : figures.time(info.longest_turn_seconds)],
      ["Mean turn of its kind", mean === null ? "–" : figures.time(mean), "an estimate"],
      ["Share of its kind's turns", ofKind && info.turns !== null && ofKind.turns > 0 ? figures.percent(Math.min(1, info.turns / ofKind.turns)) : "–"],
      ["Its kind keeps workers busy", ofKind?.busyShare === null || !ofKind ? "–" : figures.percent(ofKind.busyShare)],
    ]);
    const lists = [["Parent", info.parent ? [info.parent] : []], ["Links", info.links], ["Monitors", info.monitors], ["Monitored by", info.monitored_by]];
    const shown = JSON.stringify(lists);
    if (this.lists.dataset.shown === shown) return;
    this.lists.dataset.shown = shown;
    this.lists.replaceChildren(...lists.flatMap(([name, pids]) => [
      make("h3", {}, name),
      pids.length === 0 ? make("p", { class: "none" }, "none") :
        make("div", { class: "chips" }, ...pids.map((pid) => make("button", { type: "button", onclick: () => this.open(pid) }, pid))),
    ]));
  }
}

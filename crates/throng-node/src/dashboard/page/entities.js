// Durable entities: a list of a kind, page by page, and one of them in full, with its messages. They are asked for when
// the operator does something, because a look at an entity reads the disk.

import { byId, make, say, showFacts } from "./elements.js";

const ROWS = 50;

const time = (ms) => ms === null ? "–" : new Date(ms).toISOString();
const tally = ({ entries, has_more }) => has_more ? `${entries} or more` : String(entries);
/** A result of the node: `Ok` or `Err`. */
const text = (result) => result.Ok ?? `unreadable: ${result.Err}`;
const shown = (value) => value ? text(value.text) : "–";
const table = (label, heads, rows) => make("table", { "aria-label": label },
  make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
  make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", { class: "long" }, cell))))));

export class Entities {
  #kind = null;
  #entity = null;
  /** Cursors of the pages before this one. */
  #before = [];
  #after = null;

  constructor(ask) {
    this.ask = async (request) => {
      const { entity, error } = await ask({ get: "entity", ...request });
      if (error) throw new Error(error.detail);
      return entity;
    };
    const on = { onchange: () => this.#begin() };
    this.kinds = make("select", { id: "entity-kind", "aria-label": "Kind of the entities", ...on });
    this.which = make("select", { id: "entity-which", "aria-label": "Which entities", ...on },
      ...[["", "All"], ["parked", "With parked messages"], ["waiting", "With messages that wait"], ["reminders", "With reminders"]]
        .map(([value, name]) => make("option", { value }, name)));
    this.prefix = make("input", { type: "search", id: "entity-prefix", placeholder: "Key begins with", maxlength: "255", autocomplete: "off", spellcheck: "false", "aria-label": "Begin of the keys", ...on });
    const button = (id, name, onclick) => make("button", { type: "button", class: "quiet", id, onclick, disabled: true }, name);
    this.previous = button("entity-previous", "Previous", () => { this.#after = this.#before.pop() ?? null; this.#list(); });
    this.next = button("entity-next", "Next", () => { this.#before.push(this.#after); this.#after = this.last; this.#list(); });
    this.problem = make("p", { class: "problem", id: "entity-problem", role: "alert" });
    this.list = make("div", { id: "entity-list" });
    this.detail = make("div", { id: "entity" });
    byId("panel-entities").append(make("div", { class: "find" }, this.kinds, this.which, this.prefix, this.previous, this.next),
      this.problem, this.list, this.detail);
  }

  /** Shows the kinds, and the first page of the chosen one. */
  show() {
    return this.#try(async () => {
      const { kinds } = await this.ask({ of: "kinds" });
      say(byId("inspector-aside"), `${kinds.length} kinds of entities`);
      this.kinds.replaceChildren(...kinds.map(([kind, entities]) => make("option", { value: kind, selected: kind === this.#kind }, `${kind} (${entities})`)));
      if (kinds.length === 0) return this.list.replaceChildren(make("p", { class: "message" }, "Nothing is stored yet."));
      await this.#page();
      if (this.#entity) await this.#show();
    });
  }

  /** Does something, and shows why it was not done. */
  async #try(work) {
    say(this.problem, "");
    try { await work(); } catch (error) { say(this.problem, error.message); }
  }

  #begin() {
    [this.#before, this.#after, this.#entity] = [[], null, null];
    this.detail.replaceChildren();
    return this.#list();
  }

  #list() { return this.#try(() => this.#page()); }

  async #page() {
    const [kind, which, after] = [this.kinds.value, this.which.value, this.#after];
    this.#kind = kind;
    this.prefix.disabled = which !== "";
    const asked = which ? { of: "pending", kind, which, after, limit: ROWS } : { of: "list", kind, prefix: this.prefix.value, after, limit: ROWS };
    const answer = await this.ask(asked);
    const rows = answer.list ?? answer.pending.map((key) => ({ key }));
    this.last = rows.at(-1)?.key ?? null;
    this.previous.disabled = this.#before.length === 0;
    this.next.disabled = rows.length < ROWS;
    this.list.replaceChildren(rows.length === 0 ? make("p", { class: "message" }, "No such entity.") :
      table(`Entities of the kind ${kind}`, ["Key", "Place", "State"], rows.map(({ key, is_live, state }) => [
        make("button", { type: "button", class: "link", onclick: () => { this.#entity = key; this.#try(() => this.#show()); } }, key),
        is_live === undefined ? "" : is_live ? "live" : "at rest",
        !state ? "" : state.Ok ? `${state.Ok[1]} bytes` : `unreadable: ${state.Err}`,
      ])));
  }

  async #show() {
    const of = { kind: this.#kind, key: this.#entity, after: null, limit: ROWS };
    const { show } = await this.ask({ of: "show", ...of });
    if (!show) return this.detail.replaceChildren(make("p", { class: "message" }, "Nothing is stored of this entity any more."));
    const { cells } = await this.ask({ of: "cells", ...of });
    const { messages: waiting } = await this.ask({ of: "messages", which: "waiting", ...of });
    const { messages: parked } = await this.ask({ of: "messages", which: "parked", ...of });
    const { reminders } = await this.ask({ of: "reminders", ...of });
    const { steps } = await this.ask({ of: "steps", ...of });
    if (of.key !== this.#entity || of.kind !== this.#kind) return;
    const facts = make("dl", { class: "facts" });
    showFacts(facts, [
      ["Place", `${show.is_live ? "live" : "at rest"}${show.is_pinned ? ", pinned" : ""}`],
      ["Cells", tally(show.cells)], ["Waiting", tally(show.waiting)], ["Parked", tally(show.parked)],
      ["Reminders", tally(show.reminders)], ["Replies", tally(show.replies)], ["Next reminder", time(show.next_reminder_ms)],
      ...(show.run ? [["Workflow", `${show.run.workflow}: ${show.run.status}`, show.run.reason], ["Input", shown(show.run.input)], ["Result", shown(show.run.result)]] : []),
    ]);
    const part = (name, heads, rows) => rows.length === 0 ? [] : [make("h3", {}, name), table(name, heads, rows)];
    const message = (own) => [String(own.sequence), own.name, shown(own.value),
      own.reason === null ? "" : `attempts ${own.attempts}, ${time(own.failed_ms)}: ${own.reason}${own.place ? ` at ${own.place}` : ""}`, this.#buttons(own)];
    const heads = ["Number", "Message", "Value", "Failure", "Action"];
    this.detail.replaceChildren(make("h3", { id: "entity-title" }, `${of.kind}/${of.key}`), facts,
      make("pre", { id: "entity-state", role: "region", tabindex: "0", "aria-label": "State" }, shown(show.state)),
      ...part("Parked messages", heads, parked.map(message)), ...part("Messages that wait", heads, waiting.map(message)),
      ...part("Steps", ["Step", "Kind", "Status", "Result", "Failure"], steps.map((own) => [own.name, own.kind, own.status, shown(own.result), own.reason === null ? "" : `attempts ${own.attempts}: ${own.reason}`])),
      ...part("Reminders", ["Key", "Due", "Schedule", "Message", "Value"], reminders.map((own) => [own.key, time(own.due_ms), text(own.schedule), own.message, shown(own.value)])),
      ...part("Cells", ["Map", "Key", "Value"], cells.map((own) => [own.map, this.#key(own.key), shown(own.value)])));
  }

  /** A key of a cell, whose bytes may be no text. */
  #key(bytes) {
    return bytes.map((byte) => byte >= 32 && byte < 127 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  }

  #buttons({ sequence }) {
    const change = (of) => this.#try(async () => {
      const { changed } = await this.ask({ of, kind: this.#kind, key: this.#entity, sequence });
      await this.#show();
      if (!changed) throw new Error(`the entity has no message ${sequence} any more`);
    });
    const skip = make("button", { type: "button", class: "quiet skip", onclick: () => {
      // A message that is skipped is gone: the second press does it.
      if (skip.textContent === "Skip") say(skip, "Remove for good");
      else change("skip");
    } }, "Skip");
    return make("span", {}, make("button", { type: "button", class: "quiet retry", onclick: () => change("retry") }, "Retry"), skip);
  }
}

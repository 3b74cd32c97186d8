// The messages of a room as this page has them: without gaps, each once, across lost connections.
//
//   oldest page ◄─older()─ [ first … last ] ◄─ said(last + 1)
//                                    └─ fill(): said(last + 2), truncated and room_reset read the history
//
// Invariant: `messages` has consecutive sequence numbers, and ends with `last`.

import { api, query } from "./api.js";
import { on, tell } from "./socket.js";

const PAGE = 50;
/** Pages that a gap may have. Beyond, the log begins again with the newest page. */
const FILL_PAGES = 5;
const RETRY = 3000;

const logs = new Map();

/** Returns the log of a room, which keeps its messages while other views are shown. */
export function logOf(room) {
  if (!logs.has(room)) logs.set(room, new RoomLog(room));
  return logs.get(room);
}

/** Forgets all logs, for the next user. */
export const clear = () => logs.clear();

class RoomLog {
  constructor(room) {
    this.room = room;
    this.messages = [];
    this.last = null; // before the first page
    this.cursor = null; // of the next older page
    this.present = null;
    this.members = null;
    this.early = new Map(); // messages beyond a gap, by number
    this.filling = null;
    this.onChange = () => {};
    this.onTyping = () => {};
    this.onExit = () => {};
    this.onError = () => {};
    this.isOpen = false;
    this.isEntered = false;
    this.ends = [];
  }

  /** Enters the room, and follows it until `close`. */
  async open() {
    for (const end of this.ends) end(); // of an open that has failed
    this.isOpen = true;
    const ours = (handle) => (message) => { if (message.room === this.room) handle(message); };
    this.ends = [
      on("up", () => this.enter()),
      on("down", () => { this.isEntered = false; this.present = null; this.onChange(); }),
      on("entered", ours((message) => this.entered(message))),
      on("room_reset", ours((message) => this.entered({ ...message, truncated: true }))),
      on("said", ours(({ message }) => this.said(message))),
      on("presence", ours(({ present }) => { this.present = present; this.onChange(); })),
      on("typing", ours(({ name }) => this.onTyping(name))),
      on("exited", ours(() => this.onExit())),
      on("refused", ours((message) => { if (!message.key) this.refused(message); })),
    ];
    if (this.last === null) await this.readNewest();
    if (this.isOpen) this.enter();
  }

  close() {
    this.isOpen = this.isEntered = false;
    for (const end of this.ends) end();
    this.ends = [];
    tell({ type: "exit", room: this.room });
  }

  enter() {
    if (this.isOpen && this.last !== null) tell({ type: "enter", room: this.room, last: this.last });
  }

  entered({ sequence, present, members, truncated }) {
    this.isEntered = true;
    this.present = present;
    this.members = members ?? this.members;
    if (truncated && sequence > this.last) this.fill(sequence);
    this.onChange();
  }

  refused({ error, detail, retry_after: seconds }) {
    if (error === "not-a-member") return this.onExit();
    // In a room, typing was refused, which nobody misses.
    if (error === "rate-limited" && this.isEntered) return;
    this.onError(detail);
    setTimeout(() => { if (!this.isEntered) this.enter(); }, seconds ? seconds * 1000 : RETRY);
  }

  /** Takes a message of the socket. */
  said(message) {
    if (message.sequence <= this.last) return this.takeBack(message);
    this.early.set(message.sequence, message);
    this.takeEarly();
    if (this.early.size > 0) this.fill(Math.max(...this.early.keys()));
    this.onChange();
  }

  /** Removes the text of a message that its author or the owner of the room has removed. */
  takeBack({ sequence, text }) {
    const at = this.messages.findIndex((message) => message.sequence === sequence);
    if (text !== null || at < 0) return;
    this.messages[at] = { ...this.messages[at], text };
    this.onChange();
  }

  takeEarly() {
    for (const sequence of this.early.keys()) if (sequence <= this.last) this.early.delete(sequence);
    for (let next; (next = this.early.get(this.last + 1));) this.append([next]);
  }

  append(messages) {
    for (const message of messages) {
      this.early.delete(message.sequence);
      if (message.sequence !== this.last + 1) continue;
      this.messages.push(message);
      this.last = message.sequence;
    }
  }

  async page(cursor) {
    const page = await api("GET", query(`/rooms/${this.room}/messages`, { cursor, limit: PAGE }));
    return { messages: page.messages.reverse(), cursor: page.next_cursor };
  }

  async readNewest() {
    const { messages, cursor } = await this.page(null);
    this.messages = messages;
    this.last = messages.at(-1)?.sequence ?? 0;
    this.cursor = cursor;
    this.takeEarly();
    this.onChange();
  }

  /** Puts the page before the first message in front. */
  async older() {
    const first = this.messages[0];
    const { messages, cursor } = await this.page(this.cursor);
    if (first !== this.messages[0]) return; // another call was first
    this.messages.unshift(...messages);
    this.cursor = cursor;
    this.onChange();
  }

  /** Reads the messages from the last one on up to `sequence`, until none is missing. */
  fill(sequence) {
    this.filling ??= this.tryFill(sequence).then(() => {
      this.filling = null;
      this.takeEarly();
      if (this.early.size > 0) this.fill(Math.max(...this.early.keys()));
      this.onChange();
    }, (error) => {
      this.filling = null;
      this.onError(error.message);
      setTimeout(() => { if (this.isOpen && this.last < sequence) this.fill(sequence); }, RETRY);
    });
  }

  async tryFill(sequence) {
    let cursor = null;
    let missed = [];
    for (let pages = 0; pages < FILL_PAGES && this.last < sequence; pages += 1) {
      const page = await this.page(cursor);
      missed = [...page.messages, ...missed];
      if (page.messages.length === 0 || page.messages[0].sequence <= this.last + 1) return this.append(missed);
      cursor = page.cursor;
    }
    if (this.last < sequence) await this.readNewest();
  }
}

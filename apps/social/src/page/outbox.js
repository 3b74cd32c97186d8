// Messages that the user has said in rooms and the server has not stored yet. They outlive a lost connection and a
// reload, and go out in order, one at a time, each under its key: a message that is sent twice is stored once.
//
//   waiting ──say──► sending ──stored──► gone
//      ▲                │ └──refused for good──► failed (the user decides)
//      └─ down, refused ┘

import { current, requestKey, sentence } from "./api.js";
import { connected, on, tell } from "./socket.js";

/** Errors after which the same message may be stored later. */
const TEMPORARY = new Set(["rate-limited", "unavailable", "uncertain"]);
const RETRY = 2000;

let messages = [];
let timer = 0;
let pausedUntil = 0; // by the clock of `performance.now`
const listeners = new Set();
const storageKey = () => `throng.outbox.${current()?.name}`;

/** Calls `listener` with a room's name after each change. Returns a function that ends this. */
export function onOutbox(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed(room) {
  const kept = messages.map(({ key, room, text, time, state, why }) =>
    ({ key, room, text, time, why, state: state === "failed" ? "failed" : "waiting" }));
  try { sessionStorage.setItem(storageKey(), JSON.stringify(kept)); } catch { /* full; kept in memory */ }
  for (const listener of [...listeners]) listener(room);
}

/** Takes up the messages of the session's user that an earlier page has left. */
export function restore() {
  try {
    messages = JSON.parse(sessionStorage.getItem(storageKey())) ?? [];
  } catch {
    messages = [];
  }
}

/** Forgets the messages in memory, for the next user. */
export function clear() {
  messages = [];
  pausedUntil = 0;
  clearTimeout(timer);
}

export const waitingIn = (room) => messages.filter((message) => message.room === room);

/** Puts a message at the end. */
export function say(room, text) {
  messages.push({ key: requestKey(), room, text, time: Date.now(), state: "waiting" });
  changed(room);
  sendNext();
}

/** Removes a message. */
export function discard(key) {
  const message = messages.find((each) => each.key === key);
  messages = messages.filter((each) => each !== message);
  if (message) changed(message.room);
}

/** Sends a failed message again. */
export function retry(key) {
  const message = messages.find((each) => each.key === key);
  if (!message) return;
  message.state = "waiting";
  changed(message.room);
  sendNext();
}

function sendNext() {
  clearTimeout(timer);
  const pause = pausedUntil - performance.now();
  if (pause > 0) {
    timer = setTimeout(sendNext, pause);
    return;
  }
  if (!connected() || messages.some((message) => message.state === "sending")) return;
  const message = messages.find((each) => each.state === "waiting");
  if (!message || !tell({ type: "say", room: message.room, text: message.text, key: message.key })) return;
  message.state = "sending";
  changed(message.room);
}

on("up", sendNext);
on("down", () => {
  for (const message of messages) if (message.state === "sending") message.state = "waiting";
  for (const room of new Set(messages.map((message) => message.room))) changed(room);
});
on("stored", ({ key }) => {
  discard(key);
  sendNext();
});
on("refused", ({ key, error, detail, retry_after: seconds }) => {
  const message = key && messages.find((each) => each.key === key);
  if (!message) return;
  if (TEMPORARY.has(error)) {
    message.state = "waiting";
    pausedUntil = performance.now() + (seconds ? seconds * 1000 : RETRY);
    sendNext();
  } else {
    message.state = "failed";
    message.why = sentence(detail);
    sendNext();
  }
  changed(message.room);
});

// The socket: opened again with back-off when it is lost, at the position where the last one ended.
//
//   open ──hello──► welcome ──► (missed changes) ──► changes, news of rooms
//
// A line can die without a word, and then only silence tells. So each message that the server answers has a deadline,
// and after a silence the page asks for a sign of life:
//
//   heard ──silence──► ping ──deadline──► lost
//     ▲                 └─ any message ─┐
//     └─────────────────────────────────┘
//
// Listeners get the server's messages by type, and `up` and `down` when the connection comes and goes.

import { current, ended } from "./api.js";

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 30_000;
/** Silence, in milliseconds, after which the page asks for a sign of life. */
const SILENCE = 10_000;
/** Time, in milliseconds, in which the server must send something after a message that it answers. */
const ANSWER_MAX = 8_000;
/** Messages that have no answer. */
const UNANSWERED = new Set(["typing", "exit"]);

const listeners = new Map();
let socket = null;
let isUp = false;
let position = null; // in the changes of the timeline, for the next socket
let pause = FIRST_PAUSE;
let timer = 0;
let watch = 0; // timer of the deadline or, while nothing is awaited, of the silence
let isAwaited = false;

/** Calls `listener` with each message of a type. Returns a function that ends this. */
export function on(type, listener) {
  const those = listeners.get(type) ?? new Set();
  listeners.set(type, those.add(listener));
  return () => those.delete(listener);
}

function emit(type, message) {
  for (const listener of [...listeners.get(type) ?? []]) listener(message);
}

/** Sends a message if the connection is up. Returns whether it is. */
export function tell(message) {
  if (!isUp || socket?.readyState !== WebSocket.OPEN) return false;
  socket.send(JSON.stringify(message));
  if (!UNANSWERED.has(message.type)) awaitAnswer();
  return true;
}

/** Takes the connection for lost unless a message comes in time. A deadline that runs already is not extended. */
function awaitAnswer() {
  if (isAwaited) return;
  isAwaited = true;
  clearTimeout(watch);
  watch = setTimeout(lose, ANSWER_MAX);
}

function heard() {
  isAwaited = false;
  clearTimeout(watch);
  watch = setTimeout(ask, SILENCE);
}

function ask() {
  tell({ type: "ping" });
}

export const connected = () => isUp;

/** Opens a socket for the session. */
export function connect() {
  clearTimeout(timer);
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const own = socket = new WebSocket(`${scheme}://${location.host}/api/v1/socket`);
  own.addEventListener("open", () => own.send(JSON.stringify({ type: "hello", token: current().token, last: position })));
  own.addEventListener("message", (event) => {
    if (own !== socket) return;
    heard();
    take(JSON.parse(event.data));
  });
  own.addEventListener("close", (event) => { if (own === socket) lose(event.code); });
  awaitAnswer();
}

/** Closes the socket for good. */
export function disconnect() {
  drop();
  clearTimeout(timer);
  position = null;
  pause = FIRST_PAUSE;
}

function drop() {
  const dropped = socket;
  socket = null; // first, so that its end opens no other
  isUp = isAwaited = false;
  clearTimeout(watch);
  dropped?.close();
}

function lose(code) {
  drop();
  if (code === 4401) return ended();
  emit("down", {});
  // The factor spreads the clients of a node that restarts, which all lose their sockets at once.
  timer = setTimeout(retry, pause * (0.5 + Math.random()));
  pause = Math.min(pause * 2, LONGEST_PAUSE);
}

function retry() {
  if (!current()) return;
  if (socket === null) connect();
  else ask();
}

// A laptop that wakes up, or a network that is back, need not wait for the pause or the silence to end.
addEventListener("online", retry);
document.addEventListener("visibilitychange", () => { if (!document.hidden) retry(); });

/** Keeps the position, and passes a message on. */
function take(message) {
  if (message.type === "welcome") {
    pause = FIRST_PAUSE;
    // Without an earlier position, or with one that the server does not know, a reset follows.
    if (position) position = { ...message.position, sequence: position.sequence };
    isUp = true;
    emit("up", {});
  } else if (message.type === "reset") {
    position = message.position;
  } else if ((message.type === "post" || message.type === "deleted") && position) {
    position = { ...position, sequence: position.sequence + 1 };
  }
  emit(message.type, message);
}

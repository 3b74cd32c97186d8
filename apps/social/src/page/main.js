// The page: the session's begin and end, and the view that belongs to the hash of the address.
//
//   #/              Following          #/u/NAME            a user's posts      #/rooms         rooms
//   #/for-you       For you            #/u/NAME/followers  a user's followers  #/rooms/NAME    a room
//   #/for-you/TAG   with an interest   #/search/START      people and rooms    #/account       your account

import { account } from "./account.js";
import { current, leave, onBegin, onEnd, requestKey } from "./api.js";
import "./beside.js";
import { act, button, byId, empty, heading, make, notice } from "./elements.js";
import { entry } from "./entry.js";
import { home } from "./feed.js";
import { forgetUnseen } from "./listing.js";
import * as outbox from "./outbox.js";
import { profile, search } from "./people.js";
import { room } from "./room.js";
import * as roomLogs from "./room_log.js";
import { rooms } from "./rooms.js";
import { connect, disconnect, on } from "./socket.js";
import * as store from "./store.js";

// Back shows a list as it was left: at its place, with the pages that were loaded. So the views of the last entries of
// the history are kept alive, each with its place in the navigation and its scroll position.
const KEPT_MAX = 8;
const kept = new Map();
let entryKey = null; // of the history's entry that is shown
let entryPlace = "";
history.scrollRestoration = "manual";

let view = null;
let opened = 0; // counts views, so that a late answer for an earlier one changes nothing

/** Makes the view of a hash, with the place in the navigation to which it belongs. */
function route(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decode);
  const [first, second, third] = parts;
  if (!first) return ["home", home("following")];
  if (first === "for-you") return ["home", home("for-you", second)];
  if (first === "u" && second) {
    return [second === current().name ? "profile" : "", profile(second, third === "followers" ? "followers" : "posts")];
  }
  if (first === "rooms") return ["rooms", second ? room(second) : rooms()];
  if (first === "account") return ["profile", account()];
  if (first === "search") return ["search", search(second ?? "")];
  return ["", { title: "Not found", element: make("div", { class: "column" }, heading("Not found"),
    empty("There is no such page. ", make("a", { href: "#/" }, "Go to Following"))) }];
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Shows the view of the address. */
function open() {
  if (!current()) return;
  if (!history.state?.key) history.replaceState({ key: requestKey() }, "");
  const { key } = history.state;
  keep(key);
  const back = kept.get(key);
  kept.delete(key);
  const [place, next] = back ? [back.place, back.view] : route(location.hash);
  [entryKey, entryPlace] = [key, place];
  for (const link of document.querySelectorAll("[data-place]")) {
    if (link.dataset.place === place) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  show(next, back?.top);
}

/** Keeps the view that is left for another entry of the history, or ends it. */
function keep(nextKey) {
  if (view?.isKept && entryKey !== null && entryKey !== nextKey) kept.set(entryKey, { view, place: entryPlace, top: scrollY });
  else view?.dispose?.();
  for (const [key, { view: oldest }] of kept) {
    if (kept.size <= KEPT_MAX) break;
    oldest.dispose?.();
    kept.delete(key);
  }
}

/** Shows a view, and loads it unless it was loaded before. */
function show(next, top = 0) {
  const isFirst = view === null;
  forgetUnseen();
  view = next;
  document.title = `${next.title} · throng`;
  document.body.classList.toggle("full", next.isFull === true);
  byId("main").replaceChildren(next.element);
  scrollTo({ top });
  takeFocus(next, isFirst);
  opened += 1;
  if (next.isLoaded) renew();
  else load(next, opened);
}

/** Brings numbers and buttons up to date that no message of the server changes. */
function renew() {
  view.renew?.();
  for (const each of byId("main").querySelectorAll(".like, .follow")) each.dispatchEvent(new Event("renew"));
}
addEventListener("focus", () => { if (view?.isLoaded) renew(); });

function takeFocus(next, isFirst) {
  const wanted = sessionStorage.getItem("throng.focus");
  sessionStorage.removeItem("throng.focus");
  const target = wanted && byId(wanted) || next.focus || (isFirst ? null : next.element.querySelector("h1"));
  target?.focus({ preventScroll: true });
}

/** Loads a view. A failure leaves a sentence and a button in it. */
async function load(next, number) {
  if (!next.load) return;
  const busy = make("p", { class: "busy", role: "status" }, "Loading…");
  // An answer that comes at once should not flicker.
  const timer = setTimeout(() => { if (number === opened) next.element.append(busy); }, 300);
  try {
    await next.load();
    next.isLoaded = true;
  } catch (error) {
    if (number !== opened || !current()) return;
    const failed = make("div", { class: "failed", role: "alert" }, make("p", {}, error.message),
      button("Try again", "plain", () => { failed.remove(); load(next, number); }));
    next.element.append(failed);
  } finally {
    clearTimeout(timer);
    busy.remove();
  }
}

function setEntered(isIn) {
  for (const id of ["places", "beside", "log-out", "connection"]) byId(id).hidden = !isIn;
  document.body.classList.toggle("entered", isIn);
  if (isIn) byId("own-profile").href = `#/u/${current().name}`;
}

async function enter() {
  setEntered(true);
  outbox.restore();
  connect();
  // A view needs to know the follows and memberships.
  await loadStore();
  open();
}

let hasStoreFailed = false;

async function loadStore() {
  hasStoreFailed = await store.load().then(() => false, (error) => { notice(error.message, true); return true; });
}

onBegin(enter);
onEnd((reason) => {
  disconnect();
  for (const each of [view, ...[...kept.values()].map((entry) => entry.view)]) each?.dispose?.();
  kept.clear();
  entryKey = null;
  for (const part of [outbox, roomLogs, store]) part.clear();
  setEntered(false);
  show(entry(enter, reason));
});

function connection(state, text) {
  byId("connection").dataset.state = state;
  byId("connection-text").textContent = text;
}
on("up", () => {
  connection("live", "Live");
  if (hasStoreFailed) loadStore().then(open); // the server was away when the page began
  else document.querySelector(".failed button")?.click(); // so that nobody need try again by hand
});
on("down", () => connection("wait", "Reconnecting…"));
connection("wait", "Connecting…");

byId("log-out").addEventListener("click", () => act(byId("log-out"),
  () => leave("DELETE", "/sessions/current", undefined, "You are logged out.")));
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the address of the view
  byId("main").focus();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, dialog")) return;
  const field = event.key === "n" ? byId("text") ?? byId("message") : event.key === "/" ? byId("query") : null;
  if (!field && !["n", "/"].includes(event.key)) return;
  if (!current()) return;
  event.preventDefault();
  if (field) return field.focus();
  if (event.key === "n") sessionStorage.setItem("throng.focus", "text");
  location.hash = event.key === "n" ? "#/" : "#/search";
});
addEventListener("hashchange", open);

if (current()) enter();
else {
  setEntered(false);
  show(entry(enter));
}

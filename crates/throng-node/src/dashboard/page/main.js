// The dashboard: takes the token, keeps the connection, and passes samples on.
//
// The token comes in the fragment of the URL, which no server sees, or is typed in. It stays in this tab.

import { Connection } from "./connection.js";
import { byId, mark, say } from "./elements.js";
import * as figures from "./figures.js";
import { History } from "./history.js";
import { Inspector } from "./inspector.js";
import { Overview } from "./overview.js";

const KEY = "throng.admin-token";

const overview = new Overview();
let connection = null;
let history = new History();
const inspector = new Inspector((request) => connection ? connection.ask(request) : Promise.reject(new Error("not connected")));

/** Takes the token out of the URL, so that it is in no bookmark and no screenshot. */
function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    window.history.replaceState(null, "", location.pathname);
    sessionStorage.setItem(KEY, token);
  }
  return sessionStorage.getItem(KEY);
}

function show({ state, text }) {
  mark(byId("state"), "data-state", state);
  say(byId("state-text"), text);
  byId("board").classList.toggle("stale", state !== "live" && history.length > 0);
}

function enter(token) {
  byId("login").hidden = true;
  byId("leave").hidden = false;
  connection = new Connection(token);
  connection.addEventListener("state", ({ detail }) => show(detail));
  connection.addEventListener("denied", ({ detail }) => leave(detail === "not the admin token" ? "This is not the admin token." : `The node says: ${detail}.`));
  connection.addEventListener("welcome", ({ detail }) => {
    overview.bounds = detail.request_bounds;
    say(byId("where"), `${location.host} · version ${detail.version}`);
    inspector.refresh();
  });
  connection.addEventListener("sample", ({ detail: { sample } }) => {
    history.push(sample);
    byId("board").hidden = false;
    byId("up").hidden = false;
    say(byId("uptime"), figures.uptime(sample.metrics.uptime_seconds));
    if (!document.hidden) overview.show(history);
  });
}

function leave(problem = "") {
  connection?.close();
  connection = null;
  history = new History();
  inspector.stop();
  sessionStorage.removeItem(KEY);
  for (const id of ["board", "up", "leave"]) byId(id).hidden = true;
  byId("login").hidden = false;
  say(byId("problem"), problem);
  show({ state: "off", text: "Logged out" });
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = byId("token").value.trim();
  byId("login").reset();
  sessionStorage.setItem(KEY, token);
  say(byId("problem"), "");
  enter(token);
});
byId("leave").addEventListener("click", () => leave());
document.addEventListener("visibilitychange", () => { if (!document.hidden && history.last) overview.show(history); });
// A link with another token that is opened in this tab changes the fragment alone.
addEventListener("hashchange", () => { const token = takeToken(); if (token) { leave(); sessionStorage.setItem(KEY, token); enter(token); } });

say(byId("where"), location.host);
const token = takeToken();
if (token) enter(token);
else {
  leave();
  show({ state: "off", text: "Not connected" });
}

// The page of the message service: register, log in, post, follow, read.
//
// Text from users is set as text, never as HTML. The session is stored in this tab only.
"use strict";

const SESSION = "throng.session";
const $ = (id) => document.getElementById(id);

let session = JSON.parse(sessionStorage.getItem(SESSION) ?? "null");
let listing = "timeline";
let cursor = null;
let shown = 0; // counts requests for posts, so that a late answer to an earlier request is dropped
let socket = null;
let position = null; // in the changes of the timeline, for the next socket
let pause = 500; // milliseconds until the next attempt to open a socket

/** Calls the API; throws an Error with the detail of a problem. */
async function api(method, path, body, headers = {}) {
  if (session) headers.authorization = `Bearer ${session.token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(`/api/v1${path}`, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body),
  }).catch(() => { throw new Error("cannot reach the server"); });
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  if (response.status === 401 && session) leave();
  throw new Error(answer.detail ?? `the server answered with status ${response.status}`);
}

function notice(text, bad = false) {
  $("notice").textContent = text;
  $("notice").classList.toggle("bad", bad);
}

/** Runs an action of the user with its buttons disabled, and shows its outcome. */
async function act(element, action) {
  const buttons = element.matches("button") ? [element] : [...element.querySelectorAll("button")];
  for (const button of buttons) button.disabled = true;
  try {
    notice("");
    await action();
  } catch (error) {
    notice(error.message, true);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

function postItem(post) {
  const item = document.createElement("li");
  item.dataset.id = post.id;
  const meta = element("div", "meta", "");
  const time = element("time", "", new Date(post.time).toLocaleString());
  time.dateTime = new Date(post.time).toISOString();
  meta.append(element("strong", "", post.author), time);
  item.append(meta, element("p", "text", post.text));
  return item;
}

async function showPosts(older) {
  const asked = ++shown;
  const path = listing === "timeline" ? "/timeline" : `/users/${session.name}/posts`;
  const page = await api("GET", older ? `${path}?cursor=${encodeURIComponent(cursor)}` : path);
  if (asked !== shown) return;
  const items = page.posts.map(postItem);
  if (older) $("posts").append(...items);
  else $("posts").replaceChildren(...items);
  cursor = page.next_cursor;
  $("more").hidden = cursor === null;
  $("empty").hidden = $("posts").children.length > 0;
  $("empty").textContent = listing === "timeline"
    ? "No posts yet. Follow a user to see their posts here." : "You have not posted yet.";
}

/** Opens the socket that shows changes as they happen, and opens it again when it is lost. */
function watch() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const own = socket = new WebSocket(`${scheme}://${location.host}/api/v1/socket`);
  own.addEventListener("open", () => {
    own.send(JSON.stringify({ type: "hello", token: session.token, last: position }));
  });
  own.addEventListener("message", (event) => { if (own === socket) take(JSON.parse(event.data)); });
  own.addEventListener("close", (event) => {
    if (own !== socket) return;
    socket = null;
    if (event.code === 4401) return leave();
    // The factor spreads the clients of a node that restarts, which all lose their sockets at once.
    const spread = pause * (0.5 + Math.random());
    setTimeout(() => { if (session && socket === null) watch(); }, spread);
    pause = Math.min(pause * 2, 30_000);
  });
}

/** Applies a message of the socket. */
function take(message) {
  if (message.type === "welcome") {
    pause = 500;
    // Without an earlier position, a reset follows.
    if (position) position = { ...message.position, sequence: position.sequence };
  } else if (message.type === "reset") {
    position = message.position;
    if (listing === "timeline") act($("refresh"), () => showPosts(false));
  } else {
    position.sequence += 1;
    if (listing === "timeline") change(message);
  }
}

function change(message) {
  const find = (id) => [...$("posts").children].find((item) => item.dataset.id === id);
  if (message.type === "deleted") return find(message.id)?.remove();
  if (find(message.post.id)) return;
  // Ids have the order of posts. They have so many digits that a number would not hold them.
  const isOlder = (item) => BigInt(item.dataset.id) < BigInt(message.post.id);
  const next = [...$("posts").children].find(isOlder);
  if (next || cursor === null) $("posts").insertBefore(postItem(message.post), next ?? null);
  $("empty").hidden = $("posts").children.length > 0;
}

async function showFollowing() {
  const { following } = await api("GET", "/following");
  $("following").replaceChildren(...following.map((name) => {
    const item = document.createElement("li");
    const button = element("button", "", "Unfollow");
    button.type = "button";
    button.setAttribute("aria-label", `Unfollow ${name}`);
    button.addEventListener("click", () => act(button, async () => {
      await api("DELETE", `/following/${name}`);
      await Promise.all([showFollowing(), showPosts(false)]);
      notice(`You no longer follow ${name}.`);
    }));
    item.append(element("span", "", name), button);
    return item;
  }));
}

async function choose(which) {
  listing = which;
  $("show-timeline").setAttribute("aria-pressed", String(which === "timeline"));
  $("show-own").setAttribute("aria-pressed", String(which === "own"));
  $("listing-title").textContent = which === "timeline" ? "Timeline" : "Your posts";
  await showPosts(false);
}

function leave() {
  session = null;
  shown += 1;
  position = null;
  const closed = socket;
  socket = null; // first, so that its end opens no other
  closed?.close();
  sessionStorage.removeItem(SESSION);
  $("posts").replaceChildren();
  $("following").replaceChildren();
  show();
}

function show() {
  $("entry").hidden = session !== null;
  $("inside").hidden = session === null;
  $("who").hidden = session === null;
  $("own-name").textContent = session?.name ?? "";
}

async function enter() {
  show();
  watch();
  await Promise.all([choose("timeline"), showFollowing()]);
}

$("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  const register = event.submitter?.value === "register";
  act($("entry"), async () => {
    const credentials = { name: $("name").value, password: $("password").value };
    session = await api("POST", register ? "/users" : "/sessions", credentials);
    sessionStorage.setItem(SESSION, JSON.stringify(session));
    $("entry").reset();
    await enter();
  });
});

let draft = null; // the text being sent and its key: a repeated request posts it once
$("write").addEventListener("submit", (event) => {
  event.preventDefault();
  act($("write"), async () => {
    const text = $("text").value;
    if (draft?.text !== text) draft = { text, key: crypto.getRandomValues(new Uint32Array(4)).join("-") };
    await api("POST", "/posts", { text }, { "idempotency-key": draft.key });
    draft = null;
    $("write").reset();
    await choose("own");
    notice("Posted.");
  });
});

$("follow").addEventListener("submit", (event) => {
  event.preventDefault();
  act($("follow"), async () => {
    const name = $("target").value.trim();
    await api("PUT", `/following/${encodeURIComponent(name)}`);
    $("follow").reset();
    await Promise.all([showFollowing(), choose("timeline")]);
    notice(`You follow ${name}.`);
  });
});

for (const [id, action] of [
  ["show-timeline", () => choose("timeline")],
  ["show-own", () => choose("own")],
  ["refresh", () => showPosts(false)],
  ["more", () => showPosts(true)],
]) $(id).addEventListener("click", () => act($(id), action));
$("log-out").addEventListener("click", () => act($("log-out"), async () => {
  await api("DELETE", "/sessions/current");
  leave();
  notice("You are logged out.");
}));

show();
if (session) act($("log-out"), enter);

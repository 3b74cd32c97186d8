// A room: its messages, those that are not stored yet, the people present and typing, and the form to say something.

import { api, current } from "./api.js";
import { act, avatar, button, confirmed, count, day, empty, heading, hour, make, notice, prose, textProblem, userLink } from "./elements.js";
import { discard, onOutbox, retry, say, waitingIn } from "./outbox.js";
import { logOf } from "./room_log.js";
import { connected, on, tell } from "./socket.js";
import { isMember, join, setMember } from "./store.js";

/** Messages of one author closer than this, in milliseconds, stand under one name. */
const GROUP = 5 * 60_000;
/** The server passes typing on once a second; a name is shown for longer, so that it does not flicker. */
const TYPING = 3000;

/** Shows a room. */
export function room(name) {
  const facts = make("p", { class: "soft", id: "room-facts" }, " ");
  const leave = button("Leave", "quiet", leaveRoom, { id: "leave-room", "aria-label": `Leave ${name}` });
  const finish = button("End", "quiet", endRoom, { id: "end-room", "aria-label": `End ${name}` });
  const head = make("header", { class: "room-head" },
    make("a", { class: "back", href: "#/rooms", "aria-label": "All rooms" }, "←"),
    make("div", {}, heading(name, { class: "room-name" }), facts), finish, leave);
  const body = make("div", { class: "room-body" });
  const element = make("div", { class: "column room" }, head, body);
  leave.hidden = finish.hidden = true;

  const log = logOf(name);
  let owner = null;
  let chat = null;
  let isGone = false;

  function showFacts() {
    const parts = [log.members !== null && count(log.members, "member"),
      log.present !== null && log.isOpen && `${log.present} here now`].filter(Boolean);
    facts.textContent = parts.join(" · ") || " ";
  }

  async function find() {
    const found = await api("GET", `/rooms/${encodeURIComponent(name)}`);
    log.members = found.members;
    owner = found.owner;
    showFacts();
    return found;
  }

  async function load() {
    try {
      const found = await find();
      if (isMember(name)) await enter();
      else invite(found);
    } catch (error) {
      if (error.status !== 404) throw error;
      body.replaceChildren(empty(`There is no room named ${name}. `, make("a", { href: "#/rooms" }, "See all rooms")));
    }
  }

  function invite(found) {
    const go = button(`Join #${name}`, "primary", () => act(go, async () => {
      await join(name, true);
      await find();
      await enter();
    }), { id: "join-room" });
    body.replaceChildren(make("div", { class: "invite" },
      make("p", {}, `${found.owner} created this room on ${day(found.created)}. ${found.messages === 0 ? "Nobody has said anything yet." : `${count(found.messages, "message")} so far.`}`),
      make("p", { class: "soft" }, "Join to read and to write. You can leave at any time."), go));
  }

  async function enter() {
    if (isGone) return;
    leave.hidden = false;
    finish.hidden = owner !== current().name;
    chat?.dispose(); // of a load that has failed
    chat = conversation(name, log, body, owner === current().name);
    log.onChange = () => { chat.show(); showFacts(); };
    log.onTyping = chat.typing;
    log.onError = (detail) => notice(detail, true);
    log.onExit = () => {
      setMember(name, false);
      close();
      load().catch(() => {});
    };
    chat.show();
    await log.open();
  }

  async function leaveRoom() {
    if (!await confirmed(`Leave #${name}?`, "You can join again at any time.", "Leave")) return;
    await act(leave, async () => {
      await join(name, false);
      location.hash = "#/rooms";
    });
  }

  async function endRoom() {
    if (!await confirmed(`End #${name}?`, "Its messages are deleted for everyone, and others can use its name.", "End")) return;
    await act(finish, async () => {
      await api("DELETE", `/rooms/${encodeURIComponent(name)}`);
      setMember(name, false);
      location.hash = "#/rooms";
    });
  }

  function close() {
    leave.hidden = finish.hidden = true;
    chat?.dispose();
    if (log.isOpen) log.close();
    log.onChange = log.onTyping = log.onExit = log.onError = () => {};
    chat = null;
  }

  return { title: `#${name}`, element, load, isFull: true, renew: () => find().catch(() => {}), dispose() { isGone = true; close(); } };
}

/** Builds the conversation of a room in `body`. An owner can remove the messages and memberships of others. */
function conversation(name, log, body, isOwner) {
  const older = button("Older messages", "plain more", () => act(older, () => log.older()));
  const list = make("ol", { class: "messages", id: "messages" });
  const said = make("div", { role: "log", "aria-label": `Messages in ${name}` }, list);
  const waiting = make("ol", { class: "messages waiting", id: "waiting", "aria-label": "Messages on their way" });
  const none = empty("Nobody has said anything yet. Begin.");
  const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Conversation" }, older, said, none, waiting);
  const latest = button("Newest messages", "new-posts low", () => toEnd());
  const typists = make("p", { class: "typing soft", id: "typing", "aria-live": "off" });
  const field = make("textarea", { id: "message", rows: "1", placeholder: `Message #${name}`, "aria-keyshortcuts": "n" });
  const form = make("form", { class: "say", id: "say", "aria-label": "Write a message" },
    make("label", { for: "message", class: "visually-hidden" }, "Message"), field, make("button", { class: "primary", type: "submit" }, "Send"));
  const offline = make("p", { class: "offline soft", role: "status" });
  body.replaceChildren(scroll, latest, typists, form, offline);
  latest.hidden = true;

  let shown = []; // the sequence numbers of the elements of the list

  const isAtEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
  function toEnd() {
    scroll.scrollTop = scroll.scrollHeight;
    latest.hidden = true;
  }

  function show() {
    const wasAtEnd = isAtEnd() || shown.length === 0;
    const isPrepended = shown.length > 0 && log.messages[0]?.sequence < shown[0];
    const height = scroll.scrollHeight;
    const hasNew = showMessages();
    showWaiting();
    older.hidden = log.cursor === null;
    none.hidden = list.children.length + waiting.children.length > 0 || log.last === null;
    offline.textContent = connected() ? "" : "Not connected. Messages are sent when the connection is back.";
    if (isPrepended) scroll.scrollTop += scroll.scrollHeight - height;
    else if (wasAtEnd) toEnd();
    else if (hasNew) latest.hidden = false;
  }

  /** Brings the elements of the list up to date, and reuses those that are there. Returns whether some follow the end. */
  function showMessages() {
    const messages = log.messages;
    const [first, last] = [shown[0], shown.at(-1)];
    const fits = shown.length > 0 && messages[0]?.sequence <= first && messages.at(-1)?.sequence >= last;
    const before = fits ? messages.filter(({ sequence }) => sequence < first) : [];
    const after = fits ? messages.filter(({ sequence }) => sequence > last) : messages;
    const itemOf = (message) => messageItem(message, messages[messages.indexOf(message) - 1], toolsOf(message));
    if (!fits) list.replaceChildren();
    if (before.length > 0) list.firstElementChild.replaceWith(itemOf(messages[before.length]));
    list.prepend(...before.map(itemOf));
    list.append(...after.map(itemOf));
    for (const message of messages.filter(({ text }) => text === null)) {
      const item = list.querySelector(`[data-sequence="${message.sequence}"]:not(.removed)`);
      item?.replaceWith(itemOf(message));
    }
    shown = messages.map(({ sequence }) => sequence);
    return fits && after.length > 0;
  }

  /** Makes the buttons with which the user removes a message, or its author from the room. */
  function toolsOf({ author, sequence, text }) {
    const isOwn = author === current()?.name;
    const path = `/rooms/${encodeURIComponent(name)}`;
    const remove = (label, title, why, target) => button(label, "tool", async (event) => {
      const from = event.currentTarget;
      if (await confirmed(title, why, "Remove")) await act(from, () => api("DELETE", `${path}/${target}`));
    });
    return [
      text !== null && (isOwn || isOwner) && remove("Remove", "Remove this message?", "Its text disappears for everyone.", `messages/${sequence}`),
      isOwner && !isOwn && remove(`Remove ${author}`, `Remove ${author} from #${name}?`,
        `${author} can join again. Block ${author} in their profile to prevent it.`, `members/${author}`),
    ];
  }

  /** Shows the messages on their way. The one being sent may have come back as said before it is called stored. */
  function showWaiting() {
    const newest = log.messages.at(-1);
    const isSaid = (message) => message.state === "sending" && newest?.author === current()?.name
      && newest.text === message.text && newest.time >= message.time - 1000;
    waiting.replaceChildren(...waitingIn(name).filter((message) => !isSaid(message)).map(waitingItem));
  }

  const typing = new Map();
  function showTyping() {
    const names = [...typing.keys()];
    typists.textContent = names.length === 0 ? "" : names.length > 3 ? "Several people are typing…"
      : `${new Intl.ListFormat("en").format(names)} ${names.length === 1 ? "is" : "are"} typing…`;
  }
  function noteTyping(who) {
    if (who === current()?.name) return;
    clearTimeout(typing.get(who));
    typing.set(who, setTimeout(() => { typing.delete(who); showTyping(); }, TYPING));
    showTyping();
  }

  field.addEventListener("input", () => { if (field.value) tell({ type: "typing", room: name }); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") field.blur();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field.value;
    if (text.trim() === "") return;
    if (textProblem(text)) return notice(textProblem(text), true);
    field.value = "";
    say(name, text);
    toEnd();
  });
  let atEnd = true;
  // A keyboard on the screen, or a turned phone, must not hide the newest message.
  const resized = new ResizeObserver(() => { if (atEnd) toEnd(); });
  resized.observe(scroll);
  scroll.addEventListener("scroll", () => {
    atEnd = isAtEnd();
    if (isAtEnd()) latest.hidden = true;
    if (scroll.scrollTop < 40 && !older.hidden && !older.disabled && shown.length > 0) older.click();
  }, { passive: true });
  const ends = [
    onOutbox((of) => { if (of === name) show(); }),
    on("said", ({ room: of, message }) => {
      if (of !== name) return;
      clearTimeout(typing.get(message.author));
      typing.delete(message.author);
      showTyping();
    }),
    on("up", show),
  ];
  return {
    show, typing: noteTyping,
    dispose() {
      resized.disconnect();
      for (const end of ends) end();
      for (const timer of typing.values()) clearTimeout(timer);
    },
  };
}

/** Makes the element of a message, with its author if the message before is of another or much older. */
function messageItem(message, before, tools) {
  const date = new Date(message.time);
  const isNewDay = !before || new Date(before.time).toDateString() !== date.toDateString();
  const isFirst = isNewDay || before.author !== message.author || message.time - before.time > GROUP;
  const time = make("time", { datetime: date.toISOString() }, hour(message.time));
  const isRemoved = message.text === null;
  const text = isRemoved ? make("p", { class: "soft" }, "This message was removed.") : prose(message.text);
  const classes = ["message", isFirst && "first", isRemoved && "removed"].filter(Boolean).join(" ");
  const item = make("li", { class: classes, "data-sequence": String(message.sequence) },
    isNewDay && make("p", { class: "day" }, make("span", {}, day(message.time))),
    make("div", { class: "line" }, isFirst ? avatar(message.author) : time,
      make("div", { class: "body" }, isFirst && make("p", { class: "meta" }, userLink(message.author), time), text,
        make("div", { class: "tools" }, ...tools))));
  return item;
}

function waitingItem(message) {
  const status = { waiting: "Waiting", sending: "Sending…", failed: message.why ?? "Not sent" }[message.state];
  const tools = message.state === "failed" && make("span", { class: "tools" },
    button("Try again", "tool", () => retry(message.key)), button("Discard", "tool", () => discard(message.key)));
  return make("li", { class: `message pending ${message.state}` },
    make("div", { class: "line" }, make("span", { class: "clock", "aria-hidden": "true" }),
      make("div", { class: "body" }, prose(message.text), make("p", { class: "meta" }, status, tools))));
}

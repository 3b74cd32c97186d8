// Profiles with followers, the search for people and rooms, and rows of people.

import { api, current, query } from "./api.js";
import { act, avatar, button, confirmed, count, day, empty, heading, make, notice, number, roam, userLink } from "./elements.js";
import { Listing, postItem } from "./listing.js";
import { follow, follows, isMember, onChange } from "./store.js";

/** Makes a button that follows a user or ends it; null for the user's own name. */
export function followButton(name) {
  if (name === current()?.name) return null;
  const made = button("", "plain small follow", () => act(made, async () => {
    const wanted = !follows(name);
    await follow(name, wanted);
    notice(wanted ? `You follow ${name}.` : `You no longer follow ${name}.`);
  }), { "data-follow": name });
  made.addEventListener("renew", () => showFollow(made));
  showFollow(made);
  return made;
}

function showFollow(made) {
  const isOn = follows(made.dataset.follow);
  made.textContent = isOn ? "Following" : "Follow";
  made.setAttribute("aria-label", `${made.textContent} ${made.dataset.follow}`);
  made.setAttribute("aria-pressed", String(isOn));
  made.classList.toggle("is-on", isOn);
}

onChange(() => document.querySelectorAll("[data-follow]").forEach(showFollow));

/** Makes a row of a list of people. */
export function personRow(name) {
  return make("li", { class: "row" }, avatar(name), userLink(name), followButton(name));
}

/** Fills a list page by page. `ask` gets the end of the last page, and returns the items and the end of this one. */
function pages(list, none, ask) {
  const more = button("Show more", "plain more", () => act(more, next));
  let after = null;
  async function next() {
    const page = await ask(after);
    after = page.next;
    list.append(...page.items);
    more.hidden = after === null;
    none.hidden = list.children.length > 0;
  }
  [more.hidden, none.hidden] = [true, true];
  return { more, next };
}

/** Shows a user: `part` is `posts` or `followers`. */
export function profile(name, part) {
  const head = make("header", { class: "profile-head" }, avatar(name, "avatar big"),
    make("div", {}, heading(name), make("p", { class: "soft", id: "since" }, " ")),
    make("div", { class: "profile-tools" }, ...name === current()?.name
      ? [make("a", { class: "plain small", href: "#/account" }, "Account")] : [followButton(name), blockButton(name)]));
  const facts = make("dl", { class: "facts" });
  const panel = make("section", { role: "tabpanel", id: "profile-panel", "aria-labelledby": `tab-${part}` });
  const element = make("div", { class: "column" }, head, facts, profileTabs(name, part), panel);
  const show = part === "followers" ? followers(name, panel) : posts(name, panel);
  async function showFacts() {
    const found = await api("GET", `/users/${encodeURIComponent(name)}`);
    head.querySelector("#since").textContent = `Here since ${day(found.created)}`;
    facts.replaceChildren(...[["Posts", found.posts], ["Following", found.following], ["Followers", found.followers]]
      .map(([term, value]) => make("div", {}, make("dt", {}, value === 1 ? term.replace(/s$/, "") : term), make("dd", {}, number(value)))));
  }
  async function load() {
    try {
      await showFacts();
      await show();
    } catch (error) {
      if (error.status !== 404) throw error;
      element.replaceChildren(heading("Not found"), empty(`There is no user named ${name}. `,
        make("a", { href: "#/search" }, "Search for people")));
    }
  }
  return { title: name, element, load, isKept: true, renew: () => showFacts().catch(() => {}) };
}

function profileTabs(name, part) {
  const tab = (id, label, href) => make("a", {
    id: `tab-${id}`, role: "tab", href, "aria-selected": String(id === part), tabindex: id === part ? "0" : "-1",
    "aria-controls": "profile-panel",
  }, label);
  const list = make("div", { class: "tabs", role: "tablist", "aria-label": `About ${name}` },
    tab("posts", "Posts", `#/u/${name}`), tab("followers", "Followers", `#/u/${name}/followers`));
  roam(list, "[role=tab]", (next) => {
    sessionStorage.setItem("throng.focus", next.id);
    location.hash = next.getAttribute("href");
  });
  return list;
}

function posts(name, panel) {
  const list = make("ol", { class: "posts", id: "posts" });
  const none = empty(name === current()?.name ? "You have not posted yet." : `${name} has not posted yet.`);
  const listing = new Listing(`/users/${encodeURIComponent(name)}/posts`);
  const { more, next } = pages(list, none, async () => {
    const page = await listing.next();
    const onDelete = () => { none.hidden = list.children.length > 0; };
    return { items: page.map((post) => postItem(post, { onDelete })), next: listing.isDone ? null : "" };
  });
  panel.append(list, none, more);
  return next;
}

function followers(name, panel) {
  const list = make("ul", { class: "rows", id: "followers" });
  const none = empty(`Nobody follows ${name} yet.`);
  const { more, next } = pages(list, none, async (after) => {
    const page = await api("GET", query(`/users/${encodeURIComponent(name)}/followers`, { after, limit: 50 }));
    return { items: page.users.map(personRow), next: page.next_after };
  });
  panel.append(list, none, more);
  return next;
}

/** Makes a button that blocks a user, or ends it; null for the user's own name. */
function blockButton(name) {
  if (name === current()?.name) return null;
  let isBlocked = false;
  const made = button("Block", "quiet", async () => {
    const text = `${name} can then neither follow you nor like your posts, and your posts leave their timeline.`;
    if (!isBlocked && !await confirmed(`Block ${name}?`, text, "Block")) return;
    await act(made, async () => {
      await api(isBlocked ? "DELETE" : "PUT", `/blocks/${name}`);
      isBlocked = !isBlocked;
      show();
    });
  });
  const show = () => {
    made.textContent = isBlocked ? "Unblock" : "Block";
    made.setAttribute("aria-label", `${made.textContent} ${name}`);
  };
  show();
  api("GET", "/blocks").then(({ blocks }) => { isBlocked = blocks.includes(name); show(); }, () => {});
  return made;
}

/** Shows the search for people and rooms whose names begin with `start`. */
export function search(start) {
  const field = make("input", {
    id: "query", type: "search", value: start, placeholder: "The beginning of a name", autocapitalize: "none", spellcheck: "false",
    autocomplete: "off", "aria-keyshortcuts": "/",
  });
  const results = make("div", { class: "results" });
  const status = make("p", { class: "visually-hidden", role: "status" });
  const element = make("div", { class: "column" }, heading("Search"),
    make("form", { role: "search", class: "search" }, make("label", { for: "query" }, "People and rooms"), field), status, results);
  let asked = 0;

  async function find() {
    const own = ++asked;
    const prefix = field.value.trim().toLowerCase();
    const [people, rooms] = await Promise.all([
      api("GET", query("/users", { prefix, limit: 30 })), api("GET", query("/rooms", { prefix, limit: 10 })),
    ]);
    if (own !== asked) return;
    status.textContent = `${count(people.users.length, "user")}, ${count(rooms.rooms.length, "room")}`;
    results.replaceChildren(...group("People", people.users.map(personRow), people.next_after),
      ...group("Rooms", rooms.rooms.map(roomRow), rooms.next_after));
    if (people.users.length + rooms.rooms.length === 0) {
      results.append(empty(`No name begins with “${prefix}”. Names have lower-case letters, digits and underscores.`));
    }
  }

  let timer = 0;
  field.addEventListener("input", () => {
    history.replaceState(history.state, "", field.value ? `#/search/${encodeURIComponent(field.value)}` : "#/search");
    clearTimeout(timer);
    // A request for each letter would be wasted on all but the last.
    timer = setTimeout(() => find().catch((error) => notice(error.message, true)), 150);
  });
  element.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  return { title: "Search", element, load: find, focus: field, isKept: true, dispose() { asked += 1; clearTimeout(timer); } };
}

function group(title, rows, next) {
  if (rows.length === 0) return [];
  return [make("h2", {}, title), make("ul", { class: "rows" }, ...rows),
    next && make("p", { class: "soft" }, "There are more; type more of the name.")].filter(Boolean);
}

/** Makes a row of a list of rooms. */
export function roomRow(room) {
  return make("li", { class: "row" }, make("a", { class: "name", href: `#/rooms/${room}` },
    make("span", { class: "hash", "aria-hidden": "true" }, "#"), room), isMember(room) && make("span", { class: "badge" }, "Joined"));
}

// For you: posts chosen by follows, likes and interests, page by page in one visit; and the interests.

import { api, query } from "./api.js";
import { act, button, empty, make, notice } from "./elements.js";
import { postItem } from "./listing.js";

/** Builds the listing; with `tag`, of the posts with this tag alone, which it offers as an interest. */
export function forYou(panel, tag) {
  const interests = make("div", { class: "interests" });
  const posts = make("ol", { class: "posts", id: "posts" });
  const note = empty("");
  const more = button("More posts", "plain more", () => act(more, older));
  const again = button("Begin again", "plain more", () => act(again, load));
  [interests.hidden, note.hidden, more.hidden, again.hidden] = [true, true, true, true];
  panel.append(interests, posts, note, more, again);

  let cursor = null;
  let isGone = false;

  function show(page, isFirst) {
    const shown = new Set([...posts.children].map((item) => item.dataset.id));
    const items = page.posts.filter((post) => isFirst || !shown.has(post.id))
      .map((post) => postItem(post, { reason: because(post.reason) }));
    if (isFirst) posts.replaceChildren(...items);
    else posts.append(...items);
    cursor = page.next_cursor;
    more.hidden = cursor === null;
    say(posts.children.length > 0 ? ""
      : tag ? `Nobody has posted with #${tag} lately.`
      : "Nothing to suggest yet. Follow people, like posts, or choose interests, and posts will gather here.");
  }

  function say(text) {
    note.textContent = text;
    note.hidden = text === "";
  }

  async function load() {
    again.hidden = true;
    try {
      const page = await pageAfter(null, tag);
      if (isGone) return;
      show(page, true);
      await showInterests();
    } catch (error) {
      if (error.status !== 404) throw error;
      say("This server does not choose posts for you. Following has the posts of everyone you follow.");
    }
  }

  async function older() {
    try {
      const page = await pageAfter(cursor, tag);
      if (!isGone) show(page, false);
    } catch (error) {
      if (error.status !== 410) throw error;
      more.hidden = true;
      again.hidden = false;
      say("You have been away for a while, and there are other posts by now.");
    }
  }

  async function showInterests() {
    const [own, all] = await Promise.all([api("GET", "/interests"), api("GET", "/tags")]);
    if (isGone) return;
    const chosen = new Set(own.tags);
    const offered = [...new Set([...tag ? [tag] : [], ...own.tags, ...all.tags])];
    interests.hidden = offered.length === 0;
    interests.replaceChildren(...tag ? [make("h2", {}, `Posts with #${tag}`)] : [], make("h2", {}, "Interests"),
      make("ul", { class: "chips" }, ...offered.map((each) => make("li", {}, chip(each, chosen.has(each))))));
  }

  function chip(name, isChosen) {
    const made = button(`#${name}`, "chip", () => act(made, async () => {
      const wanted = made.getAttribute("aria-pressed") !== "true";
      await api(wanted ? "PUT" : "DELETE", `/interests/${encodeURIComponent(name)}`);
      made.setAttribute("aria-pressed", String(wanted));
      notice(wanted ? `#${name} is one of your interests.` : `#${name} is no interest of yours any more.`);
      show(await pageAfter(null, tag), true);
    }), { "aria-pressed": String(isChosen) });
    return made;
  }

  return { load, dispose() { isGone = true; } };
}

/** Returns the next page with posts. A page may be empty although another follows. */
async function pageAfter(cursor, tag) {
  for (;;) {
    const page = await api("GET", query("/for-you", { cursor, tag }));
    if (page.posts.length > 0 || page.next_cursor === null) return page;
    cursor = page.next_cursor;
  }
}

/** Says in words why a post was chosen. */
function because(reason) {
  if (reason === "following") return "You follow the author";
  if (reason === "popular") return "Popular";
  return reason?.startsWith("tag:") ? `Interest: #${reason.slice(4)}` : null;
}

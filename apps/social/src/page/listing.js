// Listings of posts, page by page, and their elements.

import { api, current, query } from "./api.js";
import { act, avatar, button, confirmed, draw, make, notice, number, prose, timeOf, userLink } from "./elements.js";
import { hasLiked, like } from "./store.js";

const PAGE = 20;

/** Order of posts: ids have so many digits that a number would not hold them. */
export const isNewer = (id, other) => BigInt(id) > BigInt(other);

/** One or several listings of the API, merged newest first. */
export class Listing {
  constructor(...paths) {
    this.sources = paths.map((path) => ({ path, cursor: null, posts: [], isDone: false }));
  }

  /** Returns the next posts; fewer than a page at the end. */
  async next() {
    const page = [];
    while (page.length < PAGE) {
      await Promise.all(this.sources.map(fillSource));
      const rest = this.sources.filter((source) => source.posts.length > 0);
      if (rest.length === 0) break;
      const newest = rest.reduce((best, source) => isNewer(source.posts[0].id, best.posts[0].id) ? source : best);
      page.push(newest.posts.shift());
    }
    return page;
  }

  /** Whether there is nothing more. */
  get isDone() {
    return this.sources.every((source) => source.isDone && source.posts.length === 0);
  }
}

async function fillSource(source) {
  // A page may be empty although another follows.
  while (source.posts.length === 0 && !source.isDone) {
    const page = await api("GET", query(source.path, { cursor: source.cursor, limit: PAGE }));
    source.posts = page.posts;
    source.cursor = page.next_cursor;
    source.isDone = page.next_cursor === null;
  }
}

const posts = new WeakMap();
/** Returns the post of an element made by `postItem`. */
export const postOf = (item) => posts.get(item);

/** Makes the element of a post. */
export function postItem(post, { reason = null, onDelete = () => {} } = {}) {
  const isOwn = post.author === current()?.name;
  const tools = make("div", { class: "tools" }, likeButton(post));
  const item = make("li", { class: "post", "data-id": post.id },
    make("article", {},
      make("a", { href: `#/u/${post.author}`, class: "sign", tabindex: "-1", "aria-hidden": "true" }, avatar(post.author)),
      make("div", { class: "body" },
        make("p", { class: "meta" }, userLink(post.author), make("span", { class: "dot-between", "aria-hidden": "true" }, "·"),
          timeOf(post.time), reason && make("span", { class: "reason" }, reason)),
        ...folded(post.text), tools)));
  if (isOwn) tools.append(button("Delete", "tool", (event) => remove(event.currentTarget, post, item, onDelete)));
  posts.set(item, post);
  return item;
}

const FOLD_CHARACTERS = 900;

/** Makes the text of a post; of a long one the beginning, with a button for the rest. */
function folded(text) {
  const paragraph = prose(text);
  if (text.length <= FOLD_CHARACTERS) return [paragraph];
  paragraph.classList.add("folded");
  const unfold = button("Show more", "tool more-text", () => {
    const isFolded = paragraph.classList.toggle("folded");
    unfold.textContent = isFolded ? "Show more" : "Show less";
    unfold.setAttribute("aria-expanded", String(!isFolded));
  }, { "aria-expanded": "false" });
  return [paragraph, unfold];
}

async function remove(from, post, item, onDelete) {
  const sure = await confirmed("Delete this post?", "It disappears for everyone, and cannot be brought back.", "Delete");
  if (!sure) return;
  await act(from, async () => {
    // A repetition is answered 404.
    await api("DELETE", `/posts/${post.id}`).catch((error) => { if (error.status !== 404) throw error; });
    item.remove();
    onDelete(post.id);
    notice("The post is deleted.");
  });
}

function likeButton(post) {
  const shown = make("span", { class: "likes" }, post.likes ? number(post.likes) : "");
  const heart = draw("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" },
    draw("path", { d: "M12 20.3C5.500 15.600 3 12.500 3 9.200A4.700 4.700 0 0 1 12 7.300a4.700 4.700 0 0 1 9 1.900c0 3.300-2.500 6.400-9 11.100z" }));
  const made = make("button", { type: "button", class: "tool like", "data-post": post.id }, heart, shown);
  let likes = post.likes ?? null;
  let asked = 0; // counts questions, so that a late answer to an earlier question is dropped
  const show = () => {
    made.setAttribute("aria-pressed", String(hasLiked(post.id)));
    made.setAttribute("aria-label", likes === null ? `Like the post of ${post.author}`
      : `Like the post of ${post.author}, likes: ${likes}`);
    shown.textContent = likes ? number(likes) : "";
  };
  const ask = async () => {
    const own = ++asked;
    const found = await api("GET", `/users/${post.author}/posts/${post.id}`);
    if (own !== asked) return;
    likes = found.likes;
    show();
  };
  made.addEventListener("click", () => act(made, async () => {
    await like(post, !hasLiked(post.id));
    // The list may have been made anew, and this button is no longer a part of it.
    for (const each of document.querySelectorAll(`.like[data-post="${post.id}"]`)) each.dispatchEvent(new Event("liked"));
  }));
  made.addEventListener("liked", () => { show(); ask().catch(() => {}); }); // without an answer, the old number stays
  made.addEventListener("renew", () => { show(); whenSeen(made, ask); });
  show();
  if (likes === null) whenSeen(made, ask);
  return made;
}

// Numbers of likes are asked for one by one, so only of posts that come into sight, a few at a time. After a refusal
// the rest waits, so that the numbers do not use up a limit that the user needs for more important requests.
const AT_ONCE = 2;
const REST_AFTER_REFUSAL = 30_000;
const seen = new Map();
const queue = [];
let asking = 0;
let restUntil = 0;

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    queue.push(seen.get(target));
    seen.delete(target);
  }
  askNext();
});

function whenSeen(element, ask) {
  seen.set(element, ask);
  observer.observe(element);
}

async function askNext() {
  if (asking >= AT_ONCE || queue.length === 0 || Date.now() < restUntil) return;
  asking += 1;
  try {
    await queue.shift()();
  } catch (error) {
    if (error.isTemporary) {
      restUntil = Date.now() + REST_AFTER_REFUSAL;
      queue.length = 0;
    }
  } finally {
    asking -= 1;
  }
  askNext();
}

/** Forgets requests of a view that is gone. */
export function forgetUnseen() {
  for (const element of seen.keys()) observer.unobserve(element);
  seen.clear();
  queue.length = 0;
}

// The home page: Following, live, and For you; and the form to write a post.

import { api, current, requestKey } from "./api.js";
import { act, button, byId, charactersLeft, empty, heading, make, notice, roam, textProblem } from "./elements.js";
import { forYou } from "./for_you.js";
import { Listing, isNewer, postItem, postOf } from "./listing.js";
import { on } from "./socket.js";
import { followed, onChange } from "./store.js";

/** Distance from the top, in pixels, below which a new post would move the text that the reader reads. */
const SCROLLED = 240;

/** Shows the tab `which`: `following` or `for-you`. */
export function home(which, tag) {
  const panel = make("section", { id: "feed", role: "tabpanel", "aria-labelledby": `tab-${which}`, tabindex: "-1" });
  const feed = which === "following" ? following(panel) : forYou(panel, tag);
  const element = make("div", { class: "column" },
    heading("Home", { class: "visually-hidden" }), composer((post) => feed.add?.(post)), tabs(which), panel);
  const title = which === "following" ? "Following" : tag ? `#${tag}` : "For you";
  return { title, element, isKept: true, load: feed.load, dispose: feed.dispose };
}

function tabs(which) {
  const tab = (id, label, href) => make("a", {
    id: `tab-${id}`, role: "tab", href, "aria-selected": String(id === which), "aria-controls": "feed",
    tabindex: id === which ? "0" : "-1",
  }, label);
  const list = make("div", { class: "tabs", role: "tablist", "aria-label": "Posts" },
    tab("following", "Following", "#/"), tab("for-you", "For you", "#/for-you"));
  roam(list, "[role=tab]", (next) => {
    sessionStorage.setItem("throng.focus", next.id); // the tab of the next view takes the focus
    location.hash = next.getAttribute("href");
  });
  return list;
}

const DRAFT = "throng.draft";

/** Makes the form to write a post. The draft outlives a reload, and a repeated request posts it once. */
function composer(add) {
  const text = make("textarea", {
    id: "text", rows: "2", placeholder: "What is new?", "aria-describedby": "text-problem text-left",
    "aria-keyshortcuts": "n",
  });
  const problem = make("p", { id: "text-problem", class: "problem", role: "alert" });
  const left = make("span", { id: "text-left", class: "soft" });
  const post = make("button", { class: "primary", type: "submit" }, "Post");
  const form = make("form", { id: "write", class: "composer", "aria-label": "Write a post" },
    make("label", { for: "text", class: "visually-hidden" }, "What is new?"), text, problem,
    make("div", { class: "actions" }, left, make("span", { class: "hint" }, "Ctrl + Enter posts"), post));
  text.value = sessionStorage.getItem(DRAFT) ?? "";
  let draft = null;
  const typed = () => {
    sessionStorage.setItem(DRAFT, text.value);
    const rest = charactersLeft(text.value);
    left.textContent = rest < 0 ? textProblem(text.value) : rest < 500 ? `${rest} characters left` : "";
  };
  text.addEventListener("input", typed);
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    if (event.key === "Escape") text.blur();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    text.setAttribute("aria-invalid", "false");
    const isPosted = await act(form, async () => {
      if (text.value.trim() === "") throw new Error("Write something first.");
      if (textProblem(text.value)) throw new Error(textProblem(text.value));
      if (draft?.text !== text.value) draft = { text: text.value, key: requestKey() };
      const posted = await api("POST", "/posts", { text: draft.text }, { "idempotency-key": draft.key });
      draft = null;
      text.value = "";
      typed();
      add(posted);
      notice("Posted.");
    }, problem);
    if (!isPosted) {
      text.setAttribute("aria-invalid", "true");
      text.focus();
    }
  });
  return form;
}

/** Builds the live listing of the posts of followed users, with the reader's own among them. */
function following(panel) {
  const posts = make("ol", { class: "posts", id: "posts" });
  const none = empty("Nothing here yet. Follow people, and their posts appear here as they write them. ",
    make("a", { href: "#/search" }, "Find people"));
  const pill = button("", "new-posts", () => showHeld(true), { id: "new-posts", "aria-live": "polite" });
  const more = button("Older posts", "plain more", () => act(more, older));
  [none.hidden, pill.hidden, more.hidden] = [true, true, true];
  panel.append(pill, posts, none, more);

  let listing = null;
  let loading = 0; // counts loads, so that a late answer to an earlier one is dropped
  let isLoaded = false;
  let early = []; // changes that came while a load was under way
  let held = []; // new posts that would have moved the text under the reader's eyes

  const find = (id) => [...posts.children].find((item) => item.dataset.id === id);
  const item = (post) => postItem(post, { onDelete: drawRest });

  async function load() {
    const own = ++loading;
    isLoaded = false;
    early = [];
    const next = new Listing("/timeline", `/users/${current().name}/posts`);
    const page = await next.next();
    if (own !== loading) return;
    [listing, held, isLoaded] = [next, [], true];
    posts.replaceChildren(...page.map(item));
    for (const change of early) apply(change);
    drawRest();
  }

  async function older() {
    const of = listing;
    const page = await of.next();
    if (of !== listing) return;
    posts.append(...page.filter((post) => !find(post.id)).map(item));
    drawRest();
  }

  function drawRest() {
    none.hidden = posts.children.length > 0 || !isLoaded;
    more.hidden = !listing || listing.isDone;
    pill.hidden = held.length === 0;
    pill.textContent = held.length === 1 ? "1 new post" : `${held.length} new posts`;
  }

  function apply(change) {
    if (!isLoaded) return void early.push(change);
    if (change.type === "deleted") {
      find(change.id)?.remove();
      held = held.filter((post) => post.id !== change.id);
    } else if (!find(change.post.id) && !held.some((post) => post.id === change.post.id)) {
      const isNewest = !posts.firstElementChild || isNewer(change.post.id, posts.firstElementChild.dataset.id);
      const isScrolled = scrollY > SCROLLED || !panel.isConnected; // Back leads to the place where the reader was
      if (isScrolled && isNewest) held.push(change.post);
      else insert(change.post);
    }
    drawRest();
  }

  function insert(post) {
    const next = [...posts.children].find((other) => isNewer(post.id, postOf(other).id));
    // An older post than those shown comes with its page.
    if (next || listing.isDone || posts.children.length === 0) posts.insertBefore(item(post), next ?? null);
  }

  function showHeld(toTop) {
    for (const post of held) insert(post);
    held = [];
    drawRest();
    if (toTop) {
      scrollTo({ top: 0 });
      byId("feed").focus({ preventScroll: true });
    }
  }

  const reload = () => load().catch((error) => notice(error.message, true));
  let people = followed().join();
  const ends = [
    on("post", apply), on("deleted", apply), on("reset", reload),
    onChange(() => {
      if (people !== followed().join()) reload();
      people = followed().join();
    }),
  ];
  const atTop = () => { if (panel.isConnected && scrollY < SCROLLED && held.length > 0) showHeld(false); };
  addEventListener("scroll", atTop, { passive: true });
  return {
    load,
    add: (post) => apply({ type: "post", post }),
    dispose() {
      loading += 1;
      for (const stop of ends) stop();
      removeEventListener("scroll", atTop);
    },
  };
}

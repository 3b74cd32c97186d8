// Elements of the page. Texts of users become text nodes and never HTML.

import { byId, draw, make } from "./make.js";

export { byId, draw, make };

/** Makes a button that does something on this page. */
export function button(label, className, onclick, attributes = {}) {
  return make("button", { type: "button", class: className, onclick, ...attributes }, label);
}

/** Makes a sentence for an empty list. */
export const empty = (text, ...more) => make("p", { class: "empty" }, text, ...more);

/** Makes a level-1 heading, which takes the focus when a view opens. */
export const heading = (text, attributes = {}) => make("h1", { tabindex: "-1", ...attributes }, text);

/** Makes a field of a form, with its label, a hint, and a place for a complaint about its value. */
export function field(id, label, hint, attributes) {
  const input = make("input", { id, name: id, required: true, "aria-describedby": `${id}-hint ${id}-problem`, ...attributes });
  const complaint = make("span", { class: "problem", id: `${id}-problem` });
  const parts = [make("label", { for: id }, label), input, make("small", { id: `${id}-hint` }, hint), complaint];
  const complain = (text) => {
    complaint.textContent = text;
    input.setAttribute("aria-invalid", String(text !== ""));
  };
  return { input, parts, complain, isBad: () => complaint.textContent !== "" };
}

/** Returns the complaint about a new password, as the server counts its characters; empty if there is none. */
export function passwordProblem(password) {
  const characters = [...password.normalize("NFC")].length;
  return characters < 8 ? "Use 8 characters or more." : characters > 128 ? "Use 128 characters at most." : "";
}

/** Maximum characters of a post or a message. A field has no maximum of its own, which would cut texts without a word. */
const TEXT_MAX = 5000;
export const charactersLeft = (text) => TEXT_MAX - [...text].length;

/** Returns the complaint about a text; empty if there is none. */
export function textProblem(text) {
  const over = -charactersLeft(text);
  return over > 0 ? `The text is too long. Remove ${count(over, "character")}.` : "";
}

/** Makes a link to a user. */
export const userLink = (name) => make("a", { class: "name", href: `#/u/${name}` }, name);

/** Draws the sign of a name: dots, symmetric, the same for the same name. */
export function avatar(name, className = "avatar") {
  let hash = 2166136261;
  for (const unit of name) hash = Math.imul(hash ^ unit.codePointAt(0), 16777619);
  const bits = mix(hash);
  const dots = [];
  for (let column = 0; column < 3; column += 1) {
    for (let row = 0; row < 5; row += 1) {
      if (!(bits >>> (column * 5 + row) & 1)) continue;
      const strong = bits >>> (16 + row * 2 + column) & 1;
      for (const x of new Set([column, 4 - column])) {
        dots.push(draw("circle", { cx: 4 + x * 4, cy: 4 + row * 4, r: 1.55, class: strong ? "strong" : "weak" }));
      }
    }
  }
  return draw("svg", { class: className, viewBox: "0 0 24 24", "aria-hidden": "true" }, ...dots);
}

function mix(hash) {
  hash = Math.imul(hash ^ hash >>> 16, 0x85ebca6b);
  hash = Math.imul(hash ^ hash >>> 13, 0xc2b2ae35);
  return hash ^ hash >>> 16;
}

const SAME_DAY = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const SAME_YEAR = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const LONG_AGO = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const IN_FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

/** Makes a `<time>`: the hour today, the day before that. */
export function timeOf(milliseconds) {
  const date = new Date(milliseconds);
  const today = new Date();
  let format = LONG_AGO;
  if (date.toDateString() === today.toDateString()) format = SAME_DAY;
  else if (date.getFullYear() === today.getFullYear()) format = SAME_YEAR;
  return make("time", { datetime: date.toISOString(), title: IN_FULL.format(date) }, format.format(date));
}

export const day = (milliseconds) => LONG_AGO.format(new Date(milliseconds));
export const hour = (milliseconds) => SAME_DAY.format(new Date(milliseconds));

const NUMBER = new Intl.NumberFormat(undefined, { notation: "compact" });
export const number = (value) => NUMBER.format(value);

/** Counts things in words: `1 post`, `3 posts`. */
export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

// A tag is what the server takes for one: at the start or after white space, of 1 to 32 letters, digits or `_`.
const PARTS = /(https?:\/\/[^\s<>"]+)|(?<=^|\s)#([\p{L}\p{N}_]{1,32})(?![\p{L}\p{N}_])/giu;

/** Makes the text of a user: text nodes, safe links, and hashtags that lead to interests. */
export function prose(text, className = "text") {
  const paragraph = make("p", { class: className, dir: "auto" });
  let from = 0;
  for (const match of text.matchAll(PARTS)) {
    const [whole, address, tag] = match;
    const link = address ? outward(address) : make("a", { href: `#/for-you/${encodeURIComponent(tag.toLowerCase())}` }, whole);
    if (!link) continue;
    paragraph.append(text.slice(from, match.index), link);
    from = match.index + link.textContent.length;
  }
  paragraph.append(text.slice(from));
  return paragraph;
}

/** Makes a link to another site; null if the address is not one of http or https. */
function outward(address) {
  const shown = withoutPunctuation(address);
  const url = URL.canParse(shown) ? new URL(shown) : null;
  if (!url || !["http:", "https:"].includes(url.protocol)) return null;
  return make("a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank" }, shown);
}

const OPENINGS = { ")": "(", "]": "[", "}": "{" };

/** Returns an address without the punctuation of the sentence around it. A bracket that the address has opened stays. */
function withoutPunctuation(address) {
  let end = address.length;
  for (; end > 0 && ".,;:!?)]}'»”".includes(address[end - 1]); end -= 1) {
    const [last, opening] = [address[end - 1], OPENINGS[address[end - 1]]];
    const count = (bracket) => address.slice(0, end).split(bracket).length;
    if (opening && count(opening) >= count(last)) break;
  }
  return address.slice(0, end);
}

/** Lets the arrow keys, Home and End move between the tabs of a list, as WAI-ARIA describes. */
export function roam(list, selector, choose) {
  list.addEventListener("keydown", (event) => {
    const tabs = [...list.querySelectorAll(selector)];
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    choose(tabs[(to + tabs.length) % tabs.length]);
  });
}

let noticed = 0;

/** Tells the outcome of an action, to the eye and to assistive technology. */
export function notice(text, isBad = false) {
  const region = byId("notice");
  region.replaceChildren(...text ? [make("p", { class: isBad ? "bad" : "" }, text)] : []);
  clearTimeout(noticed);
  if (text) noticed = setTimeout(() => region.replaceChildren(), isBad ? 12_000 : 5_000);
}

/** Runs an action with its buttons disabled. An error is shown, in `problem` if given. Returns whether it succeeded. */
export async function act(element, action, problem = null) {
  const buttons = element.matches("button") ? [element] : [...element.querySelectorAll("button")];
  const focused = document.activeElement;
  for (const each of buttons) each.disabled = true;
  if (problem) problem.textContent = "";
  try {
    await action();
    return true;
  } catch (error) {
    if (problem) problem.textContent = error.message;
    else notice(error.message, true);
    return false;
  } finally {
    for (const each of buttons) each.disabled = false;
    // A disabled button loses the focus, and the keyboard would begin at the top again.
    if (buttons.includes(focused) && document.activeElement === document.body) focused.focus();
  }
}

/** Asks whether to do something that cannot be undone. */
export function confirmed(title, text, yes) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

// Elements of the page. Texts become text nodes and never HTML, because names of processes may be anything.

import { byId, draw, make } from "./make.js";

export { byId, draw, make };

/** Sets an element's text, if it differs. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets an attribute, if it differs. */
export function mark(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Shows a list of facts `[name, value, note]` in a <dl>, and reuses the elements of the last time. */
export function showFacts(list, facts) {
  while (list.children.length > facts.length) list.lastElementChild.remove();
  facts.forEach(([name, value, note], at) => {
    let row = list.children[at];
    if (!row) {
      row = make("div", {}, make("dt"), make("dd", {}, make("span"), " ", make("small")));
      list.append(row);
    }
    say(row.firstElementChild, name);
    say(row.querySelector("span"), value);
    say(row.querySelector("small"), note ?? "");
  });
}

/** Lets the arrow keys move between the buttons of a group, of which one can be reached by Tab. */
export function roam(group, selector, choose) {
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const buttons = [...group.querySelectorAll(selector)];
    const at = buttons.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = buttons[(at + step + buttons.length) % buttons.length];
    choose(next);
    next.focus();
  });
}

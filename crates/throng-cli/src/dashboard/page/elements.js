// Elements of the page. Texts become text nodes and never HTML, because names of processes may be anything.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** Makes an element with properties, attributes and children; a string becomes a text node. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Makes an element of a drawing. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

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

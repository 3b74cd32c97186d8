// The list of rooms: those of the user, all others, and the form to create one.

import { api, query } from "./api.js";
import { act, button, empty, heading, make, notice } from "./elements.js";
import { roomRow } from "./people.js";
import { memberships, onChange, setMember } from "./store.js";

/** Shows the list of rooms. */
export function rooms() {
  const own = make("ul", { class: "rows", id: "own-rooms" });
  const none = empty("You are in no room yet. Join one below, or create your own.");
  const others = make("ul", { class: "rows", id: "all-rooms" });
  const noOthers = empty("There are no rooms yet. Create the first.");
  const more = button("Show more", "plain more", () => act(more, next));
  [none.hidden, noOthers.hidden, more.hidden] = [true, true, true];
  const element = make("div", { class: "column" }, heading("Rooms"), creation(),
    make("section", { "aria-labelledby": "own-title" }, make("h2", { id: "own-title" }, "Your rooms"), own, none),
    make("section", { "aria-labelledby": "all-title" }, make("h2", { id: "all-title" }, "All rooms"), others, noOthers, more));
  let after = null;

  function showOwn() {
    own.replaceChildren(...memberships().map(roomRow));
    none.hidden = own.children.length > 0;
  }

  async function next() {
    const page = await api("GET", query("/rooms", { after, limit: 50 }));
    after = page.next_after;
    others.append(...page.rooms.map(roomRow));
    more.hidden = after === null;
    noOthers.hidden = others.children.length > 0;
  }

  showOwn();
  return { title: "Rooms", element, load: next, isKept: true, dispose: onChange(showOwn) };
}

/** Makes the form to create a room. */
function creation() {
  const field = make("input", {
    id: "room-name", required: true, pattern: "[a-z0-9_]+", autocapitalize: "none", spellcheck: "false",
    autocomplete: "off", placeholder: "gardening", "aria-describedby": "room-hint room-problem",
  });
  const problem = make("p", { class: "problem", id: "room-problem", role: "alert" });
  const form = make("form", { class: "card inline", id: "create-room", novalidate: true },
    make("label", { for: "room-name" }, "Create a room"),
    make("div", { class: "field-row" }, field, make("button", { class: "primary", type: "submit" }, "Create")),
    make("p", { class: "soft", id: "room-hint" }, "Lower-case letters, digits and underscores. Everybody can find and join it."), problem);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = field.value.trim();
    const isCreated = await act(form, async () => {
      if (!/^[a-z0-9_]{1,32}$/.test(name)) throw new Error("A name has 1 to 32 lower-case letters, digits or underscores.");
      await api("POST", "/rooms", { name });
      setMember(name, true);
      notice(`#${name} is yours. Say hello.`);
      location.hash = `#/rooms/${name}`;
    }, problem);
    field.setAttribute("aria-invalid", String(!isCreated));
    if (!isCreated) field.focus();
  });
  return form;
}

// The column beside the page: the user's rooms, and the people followed.

import { byId, make } from "./elements.js";
import { personRow, roomRow } from "./people.js";
import { followed, memberships, onChange } from "./store.js";

const SHOWN = 12;

/** Brings the column up to date. */
function show() {
  byId("beside").replaceChildren(
    section("Your rooms", "beside-rooms", memberships(), roomRow, "You are in no room yet.", "#/rooms", "All rooms"),
    section("You follow", "following", followed(), personRow, "You follow nobody yet.", "#/search", "Find people"));
}

function section(title, id, names, row, none, href, link) {
  const rest = names.length - SHOWN;
  return make("section", {},
    make("div", { class: "section-head" }, make("h2", {}, title), make("a", { href }, link)),
    make("ul", { class: "rows", id }, ...names.slice(0, SHOWN).map(row)),
    names.length === 0 && make("p", { class: "soft" }, none),
    rest > 0 && make("p", { class: "soft" }, `and ${rest} more`));
}

onChange(show);

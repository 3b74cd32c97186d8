// The page before a session: log in, or sign up.

import { api, begin } from "./api.js";
import { act, avatar, field, heading, make, passwordProblem } from "./elements.js";

const CROWD = ["ada", "bo", "chen", "dara", "emil", "fay", "gus", "hana", "ines", "jun", "kai", "lena", "milo", "noor", "otis", "pia", "quin", "rosa"];

/** Shows the form; `entered` is called with a session, `reason` says why the last one has ended. */
export function entry(entered, reason) {
  const problem = make("p", { class: "problem", id: "problem", role: "alert" });
  const name = field("name", "Name", "a–z, 0–9 and _, at most 32", {
    autocomplete: "username", autocapitalize: "none", spellcheck: "false",
  });
  const password = field("password", "Password", "8 characters or more", {
    type: "password", autocomplete: "current-password",
  });
  const form = make("form", { id: "entry", class: "card entry", novalidate: true, "aria-labelledby": "entry-title" },
    make("h2", { id: "entry-title" }, "Come in"), reason && make("p", { class: "soft" }, reason), ...name.parts, ...password.parts, problem,
    make("div", { class: "actions" },
      make("button", { class: "primary", type: "submit", value: "log-in" }, "Log in"),
      make("button", { class: "plain", type: "submit", value: "register" }, "Sign up")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const isNew = event.submitter?.value === "register";
    if (!check(isNew)) return;
    const credentials = { name: name.input.value, password: password.input.value };
    const isIn = await act(form, async () => begin(await api("POST", isNew ? "/users" : "/sessions", credentials)), problem);
    if (isIn) entered();
    else name.input.focus();
  });

  /** Checks the fields, binds a problem to its field, and moves the focus to the first. */
  function check(isNew) {
    problem.textContent = "";
    name.complain(name.input.value === "" ? "Enter your name." : isNew && !/^[a-z0-9_]{1,32}$/.test(name.input.value)
      ? "Use at most 32 lower-case letters, digits and underscores, and nothing else." : "");
    const typed = password.input.value;
    password.complain(typed === "" ? "Enter your password." : isNew ? passwordProblem(typed) : "");
    const bad = [name, password].find((each) => each.isBad());
    bad?.input.focus();
    return !bad;
  }

  const element = make("div", { class: "welcome" },
    make("div", { class: "pitch" },
      make("div", { class: "crowd", "aria-hidden": "true" }, ...CROWD.map((each) => avatar(each))),
      heading("Short posts, and rooms to talk."),
      make("p", { class: "lead" }, "Follow people and read what they write as they write it. Join a room and talk, live.")),
    form);
  return { title: "Log in", element };
}

// The user's own account: a new password, the end of all sessions, and the end of the account.

import { current, leave } from "./api.js";
import { act, button, confirmed, field, heading, make, passwordProblem } from "./elements.js";

/** Shows the account. */
export function account() {
  const element = make("div", { class: "column" }, heading("Your account"), passwordForm(), sessions(), deletion());
  return { title: "Your account", element };
}

function passwordForm() {
  const problem = make("p", { class: "problem", id: "problem", role: "alert" });
  const old = field("old", "Current password", "", { type: "password", autocomplete: "current-password" });
  const next = field("new", "New password", "8 characters or more", { type: "password", autocomplete: "new-password" });
  // Password managers need the name beside the new password.
  const name = make("input", { type: "text", autocomplete: "username", value: current().name, hidden: true });
  const form = make("form", { id: "password-form", class: "card entry", novalidate: true, "aria-labelledby": "password-title" },
    make("h2", { id: "password-title" }, "Change your password"),
    make("p", { class: "soft" }, "All your sessions end, also this one."), name, ...old.parts, ...next.parts, problem,
    make("div", { class: "actions" }, make("button", { class: "primary", type: "submit" }, "Change the password")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    old.complain(old.input.value === "" ? "Enter your current password." : "");
    next.complain(passwordProblem(next.input.value));
    const bad = [old, next].find((each) => each.isBad());
    if (bad) return bad.input.focus();
    const body = { old: old.input.value, new: next.input.value };
    const isDone = await act(form, () => leaveAll("PUT", "/password", body, "Your password is changed. Log in with the new one."), problem);
    if (!isDone) old.input.focus();
  });
  return form;
}

function sessions() {
  const all = button("Log out everywhere", "plain", async () => {
    const text = "Every browser and program that is logged in with your name has to log in again, this one too.";
    if (!await confirmed("Log out everywhere?", text, "Log out")) return;
    await act(all, () => leaveAll("DELETE", "/sessions", undefined, "You are logged out everywhere."));
  }, { id: "log-out-everywhere" });
  return make("section", { class: "card entry", "aria-labelledby": "sessions-title" },
    make("h2", { id: "sessions-title" }, "Sessions"),
    make("p", { class: "soft" }, "End them all if you have lost a device, or left a session open elsewhere."),
    make("div", { class: "actions" }, all));
}

function deletion() {
  const problem = make("p", { class: "problem", id: "delete-problem", role: "alert" });
  const password = field("delete-password", "Current password", "", { type: "password", autocomplete: "current-password" });
  const form = make("form", { id: "delete-form", class: "card entry", novalidate: true, "aria-labelledby": "delete-title" },
    make("h2", { id: "delete-title" }, "Delete your account"),
    make("p", { class: "soft" }, "Your posts and follows are deleted. Your messages in rooms stay, and your name is not given to anybody else."),
    ...password.parts, problem,
    make("div", { class: "actions" }, make("button", { class: "primary danger", type: "submit" }, "Delete the account")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    password.complain(password.input.value === "" ? "Enter your current password." : "");
    if (password.isBad()) return password.input.focus();
    if (!await confirmed("Delete your account?", "It cannot be brought back.", "Delete")) return;
    const body = { password: password.input.value };
    await act(form, () => leaveAll("DELETE", "/account", body, "Your account is deleted."), problem);
  });
  return form;
}

/** Ends all sessions by a request that may need the password. */
async function leaveAll(method, path, body, reason) {
  try {
    await leave(method, path, body, reason);
  } catch (error) {
    throw error.slug === "wrong-credentials" ? new Error("The current password is wrong.") : error;
  }
}

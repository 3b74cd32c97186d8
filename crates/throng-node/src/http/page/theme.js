// The theme: by the system's preference, or as chosen here.

const KEY = "throng.theme";
const THEMES = ["auto", "light", "dark"];
const NAMES = { auto: "Auto", light: "Light", dark: "Dark" };
const button = document.getElementById("theme");

function chosen() {
  try {
    return THEMES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "auto";
  } catch {
    return "auto"; // a browser may forbid storage
  }
}

function apply(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = NAMES[theme];
  button.setAttribute("aria-label", `Theme: ${NAMES[theme]}`);
}

let theme = chosen();
apply(theme);
button.addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  try { localStorage.setItem(KEY, theme); } catch { /* not kept, then */ }
  apply(theme);
});

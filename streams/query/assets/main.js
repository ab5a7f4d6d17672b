// What is shown is what the address after # says: #/ the trees, #/t/NAME a tree, #/t/NAME/n/NODE a node of it.

import { alive, events, key } from "./api.js";
import { askForKey, showShortcuts } from "./dialogs.js";
import { blank, el, icon } from "./dom.js";
import { TreeView } from "./tree.js";
import { TreesView } from "./trees.js";

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const crumbs = document.getElementById("crumbs");
const keyButton = document.getElementById("key");
const themeButton = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
let view = null;

function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/");
  try {
    const [tree, node] = [decodeURIComponent(parts[1] ?? ""), decodeURIComponent(parts[3] ?? "")];
    if (parts[0] === "") return { name: "trees" };
    if (parts[0] === "t" && tree) return { name: "tree", tree, node: parts[2] === "n" && node ? node : null, query: new URLSearchParams(query).get("q") };
  } catch {
    // A broken escape is no address.
  }
  return { name: "nothing" };
}

function show() {
  const at = place();
  if (at.name === "tree" && view instanceof TreeView && view.name === at.tree) {
    view.go(at);
    return;
  }
  view?.end();
  view = null;
  main.replaceChildren();
  document.body.dataset.view = at.name;
  crumbs.replaceChildren(...(at.name === "tree" ? [el("a", { href: "#/" }, "Trees"), icon("chevron"), el("span", { "aria-current": "page", title: at.tree }, at.tree)] : []));
  document.title = at.name === "tree" ? `${at.tree} · Banyan` : "Banyan";
  if (at.name === "tree") view = new TreeView(main, at);
  else if (at.name === "trees") view = new TreesView(main);
  else main.append(blank({ heading: "There is nothing at this address", actions: [el("a", { class: "button", href: "#/" }, "All trees")] }));
  view?.start();
}

// ---------------------------------------------------------------------------------------------------------------- the service

let away = false;

async function look() {
  while (away) {
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    if (await alive()) {
      there();
      view?.refresh();
    }
  }
}

events.addEventListener("away", () => {
  if (away) return;
  away = true;
  banner.textContent = "The service cannot be reached. What you see may be out of date; this page tries again by itself.";
  banner.hidden = false;
  look();
});

function there() {
  away = false;
  banner.hidden = true;
}

events.addEventListener("there", there);
events.addEventListener("unauthorized", (event) => {
  keyButton.hidden = false;
  askForKey({ wrong: event.detail.sent });
});
events.addEventListener("key", () => {
  keyButton.hidden = !key();
  view?.end();
  view = null;
  show();
});
keyButton.hidden = !key();
keyButton.addEventListener("click", () => askForKey({ wrong: false }));

// ------------------------------------------------------------------------------------------------------------------- colours

function dark() {
  return document.documentElement.dataset.theme === "dark";
}

function showTheme() {
  themeButton.setAttribute("aria-pressed", String(dark()));
}

function turnTheme() {
  const next = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  document.documentElement.dataset.themeChosen = "";
  try {
    localStorage.setItem("banyan-theme", next);
  } catch {
    // Then it holds until the page is left.
  }
  showTheme();
}

themeButton.addEventListener("click", turnTheme);
// After theme.js, which asked first and is told first.
system.addEventListener("change", showTheme);
showTheme();

// ------------------------------------------------------------------------------------------------------------------ keyboard

document.getElementById("help").addEventListener("click", showShortcuts);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) return;
  if (event.key === "?") showShortcuts();
  else if (event.key === "t") turnTheme();
  else if (event.key === "g") location.hash = "#/";
  else if (!view?.press(event)) return;
  event.preventDefault();
});
addEventListener("hashchange", show);
// A page that the browser keeps for "back" would keep its stream of commits, too.
addEventListener("pagehide", () => {
  view?.end();
  view = null;
});
addEventListener("pageshow", (event) => event.persisted && show());
show();

// What asks or tells something before anything else.

import { key, setKey } from "./api.js";
import { button, el } from "./dom.js";

let asking = null;

/** Ask for the key; once at a time. */
export function askForKey({ wrong }) {
  if (asking) {
    if (wrong) asking.wrong();
    return;
  }
  const mistake = el("p", { class: "mistake", id: "key-mistake", role: "alert", hidden: !wrong }, "This key is not accepted: it may be mistyped, expired or revoked.");
  const input = el("input", {
    type: "password",
    id: "key-input",
    name: "key",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "banyan_…",
    required: true,
    maxlength: "500",
    "aria-describedby": "key-mistake key-about",
  });
  const dialog = el("dialog", { class: "dialog", "aria-labelledby": "key-heading" });
  const form = el(
    "form",
    {
      method: "dialog",
      on: {
        submit: (event) => {
          event.preventDefault();
          const value = input.value.trim();
          if (!value) return;
          dialog.close();
          setKey(value);
        },
      },
    },
    el("h2", { id: "key-heading" }, "This service asks for a key"),
    el("p", { id: "key-about", class: "muted" }, "It stays in this tab and is sent in a header, never in an address. To make one: ", el("code", {}, "banyan keys create my-browser --right read")),
    el("label", { for: "key-input" }, "Key"),
    input,
    mistake,
    el(
      "div",
      { class: "actions" },
      el("button", { type: "submit", class: "button primary" }, "Use this key"),
      key() ? button("Forget the key", () => (dialog.close(), setKey(null))) : null,
      button("Cancel", () => dialog.close(), { kind: "quiet" }),
    ),
  );
  dialog.append(form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    asking = null;
  });
  document.body.append(dialog);
  asking = { wrong: () => (mistake.hidden = false) };
  dialog.showModal();
  input.focus();
}

const SHORTCUTS = [
  ["/", "Search"],
  ["↑ ↓", "Go through the outline or the hits"],
  ["→ ←", "Open and close a topic"],
  ["Enter", "Show a node or a hit"],
  ["z", "Draw from the selected topic"],
  ["Backspace", "Draw from one level up"],
  ["w", "Why is this item here?"],
  ["1 2 3", "Node, search, activity"],
  ["Esc", "Clear what is drawn"],
  ["t", "Light or dark"],
  ["g", "All trees"],
];

/** Say which keys do what. */
export function showShortcuts() {
  if (document.querySelector("dialog[open]")) return;
  const rows = SHORTCUTS.map(([keys, what]) => [el("dt", {}, keys.split(" ").map((each) => el("kbd", {}, each))), el("dd", {}, what)]);
  const dialog = el("dialog", { class: "dialog", "aria-labelledby": "shortcuts-heading" }, el("h2", { id: "shortcuts-heading" }, "Keyboard"), el("dl", { class: "shortcuts" }, rows.flat()));
  dialog.append(el("div", { class: "actions" }, button("Close", () => dialog.close(), { kind: "primary" })));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

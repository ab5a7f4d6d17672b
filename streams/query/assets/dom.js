// Elements from values. Text is only ever set as text: nothing here, or anywhere else on the page, makes markup from a string.

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes by name, handlers in `on`, then children, which are nodes or texts; null is left out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for a picture. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (name === "vars") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

const present = (children) => children.flat().filter((child) => child !== null && child !== undefined && child !== false);

/** Put children in the place of those that are there; null is left out. */
export function put(element, ...children) {
  element.replaceChildren(...present(children));
}

const ICONS = {
  back: "M12 4l-6 6 6 6",
  chevron: "M7 5l5 5-5 5",
  close: "M5 5l10 10M15 5L5 15",
  down: "M10 4v12M5 11l5 5 5-5",
  leaf: "M5 15C4 8 8 4 16 4c0 8-4 12-11 11zM5 15l5-5",
  link: "M8 12l4-4M9 6l2-2a3.5 3.5 0 0 1 5 5l-2 2M11 14l-2 2a3.5 3.5 0 0 1-5-5l2-2",
  out: "M4 8V4h4M16 12v4h-4M4 4l5 5M16 16l-5-5",
  search: "M9 3a6 6 0 1 0 0 12A6 6 0 0 0 9 3zM13.5 13.5L17 17",
  topic: "M10 17V8M10 11C6 11 5 9 5 5M10 11c4 0 5-2 5-6",
  why: "M10 3v5M10 8L5 12v5M10 8l5 4v5",
  map: "M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM10 3v4M16 13l-3.5-1.5M4 13l3.5-1.5",
  list: "M4 5h12M7 10h9M10 15h6",
  pulse: "M2 10h4l2-5 4 10 2-5h4",
};

/** A small picture that says nothing a text beside it does not. */
export function icon(name) {
  return svg("svg", { viewBox: "0 0 20 20", class: "glyph", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => whole.format(value);
export const compact = (value) => (value < 10_000 ? whole.format(value) : short.format(value));
export const counted = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** A rate, in as many digits as mean something. */
export function rate(perSecond) {
  if (perSecond <= 0) return "0/s";
  return perSecond >= 10 ? `${number(Math.round(perSecond))}/s` : `${perSecond.toFixed(1)}/s`;
}

export function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  for (; value >= 1000 && at < units.length - 1; at += 1) value /= 1000;
  return `${value >= 100 || at === 0 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

const day = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

/** When something was, in the reader's own zone. */
export function when(iso) {
  const date = new Date(iso);
  return el("time", { datetime: iso, title: iso }, Number.isNaN(date.valueOf()) ? String(iso) : day.format(date));
}

export const shorten = (text, characters) => (text.length <= characters ? text : `${text.slice(0, characters - 1).trimEnd()}…`);

/** A text's first line: of an extractive summary its words, of others the first sentences. */
export const firstLine = (text) => (text ?? "").trim().split("\n", 1)[0];

/** What a node is called. */
export function title(node) {
  if (node.kind === "root" || node.id === "root") return "The whole tree";
  return (node.kind === "leaf" ? (node.text ?? "").trim() : firstLine(node.text)) || node.id;
}

/** What a node is called where there is little room: two of its words, or the beginning. */
export function brief(node) {
  const words = title(node).split(" · ");
  return shorten(words.length > 2 ? words.slice(0, 2).join(" · ") : title(node), 26);
}

/** Say something to those who hear the page. */
export function say(text) {
  document.getElementById("spoken").textContent = text;
}

/** Calls once, after calls have ceased for a while. */
export function debounced(milliseconds, action) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

/** What stands where something is on its way. */
export function waiting(lines = 3, label = "Loading") {
  const rows = Array.from({ length: lines }, (_, at) => el("div", { class: "bone", vars: { "--w": `${92 - ((at * 29) % 45)}%` } }));
  return el("div", { class: "waiting", role: "status", "aria-label": label }, rows);
}

/** What stands where there is nothing, or something went wrong. */
export function blank({ heading, text, kind = "empty", actions = [] }) {
  return el(
    "div",
    { class: `blank ${kind}`, role: kind === "error" ? "alert" : null },
    el("h2", {}, heading),
    text ? el("p", {}, text) : null,
    actions.length ? el("div", { class: "actions" }, actions) : null,
  );
}

export function button(label, action, { kind = "", glyph = null, ...attributes } = {}) {
  return el("button", { type: "button", class: `button ${kind}`, on: { click: action }, ...attributes }, glyph ? icon(glyph) : null, label);
}

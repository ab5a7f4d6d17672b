// One node: its text, where it comes from, and how fresh it is.

import { get, part } from "./api.js";
import { blank, brief, button, counted, el, firstLine, icon, number, put, shorten, title, waiting, when } from "./dom.js";
import { decisions, named } from "./route.js";

const CHILDREN = 8;
const SOURCES = 20;

export class NodePanel {
  /** `on.select(id)`, `on.zoom(id)`, `on.draw(paths)`. */
  constructor(host, tree, on, signal) {
    Object.assign(this, { host, tree, on, signal, node: null });
  }

  empty() {
    this.node = null;
    this.host.replaceChildren(blank({ heading: "Nothing is selected", text: "Choose a part of the rings or a row of the outline: its text, where it comes from and how fresh it is stand here." }));
  }

  /** Show a node; gives it, or null when it could not be read. */
  async show(id, { quiet = false } = {}) {
    if (!quiet) this.host.replaceChildren(waiting(6, "Loading the node"));
    this.wanted = id;
    try {
      const node = await get(`trees/${part(this.tree)}/nodes/${part(id)}`, { order: "size", limit: CHILDREN }, { signal: this.signal });
      if (this.wanted !== id) return null;
      const route = quiet && this.node?.id === id ? this.host.querySelector(".route-slot") : null;
      this.node = node;
      this.draw(node);
      if (route) this.host.querySelector(".route-slot")?.replaceWith(route);
      return node;
    } catch (error) {
      if (error.name === "AbortError" || this.wanted !== id) return null;
      if (!quiet) this.host.replaceChildren(error.kind === "node-not-found" ? this.gone() : blank({ heading: error.title, text: error.message, kind: "error", actions: [button("Try again", () => this.on.select(id))] }));
      return null;
    }
  }

  gone() {
    const text = "It was forgotten, or gave its place to another topic.";
    return blank({ heading: "There is no such node", text, kind: "error", actions: [button("The whole tree", () => this.on.select("root"))] });
  }

  draw(node) {
    const leaf = node.kind === "leaf";
    const [heading, body] = parted(node);
    this.route = el("div", { class: "route-slot" });
    put(
      this.host,
      el(
        "article",
        { class: "node" },
        this.path(node),
        el(
          "div",
          { class: "badges" },
          el("span", { class: `badge kind ${node.kind}` }, icon(leaf ? "leaf" : "topic"), { leaf: "Item", summary: "Topic", root: "Tree" }[node.kind]),
          freshness(node),
        ),
        el("h2", {}, heading),
        body ? el("p", { class: "node-text", tabindex: body.length > 900 ? "0" : null }, body) : null,
        node.text ? null : el("p", { class: "muted" }, node.kind === "root" ? "The root holds everything and has no text of its own." : "No text yet."),
        el(
          "div",
          { class: "actions" },
          leaf ? button("Why is it here?", () => this.why(), { glyph: "why", id: "why" }) : null,
          leaf || node.kind === "root" ? null : button("Draw from here", () => this.on.zoom(node.id), { glyph: "map" }),
        ),
        this.route,
        this.facts(node),
        leaf ? null : this.children(node),
        node.kind === "summary" ? this.sources(node) : null,
      ),
    );
  }

  path(node) {
    if (node.kind === "root") return null;
    const crumb = (each, text) => el("li", {}, button(text, () => this.on.select(each.id), { kind: "link", title: shorten(each.text ?? "", 300) }));
    return el("nav", { "aria-label": "Above this node" }, el("ol", { class: "above" }, crumb({ id: "root" }, "Tree"), node.path.map((each) => crumb(each, brief(each)))));
  }

  facts(node) {
    const rows = [
      ["Speaker", node.speaker],
      ["When", node.at ? when(node.at) : null],
      ["Conversation", node.conversation],
      ["Source", node.source],
      ["Address", node.url ? link(node.url) : null],
      ["Chunk", node.chunks > 1 ? `${number(node.chunk + 1)} of ${number(node.chunks)}` : null],
      ["Record", node.event_id ? el("code", {}, node.event_id) : null],
      ["Items below", node.kind === "leaf" ? null : number(node.descendants)],
      ["Not covered yet", node.kind === "summary" ? number(node.pending) : null],
      ["Depth", node.kind === "root" ? null : number(node.path.length + 1)],
      ["Version", number(node.version)],
      ["Made by commit", node.kind === "root" ? null : number(node.created_seq)],
      ...Object.entries(node.attributes).map(([name, value]) => [name, String(value)]),
      ...Object.entries(node.metadata).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
      ["Node", node.kind === "root" ? null : el("code", {}, node.id)],
    ].filter(([, value]) => value !== null && value !== undefined && value !== "");
    return el("dl", { class: "facts" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]).flat());
  }

  sources(node) {
    if (!node.sources.length) return null;
    const more = node.sources.length >= SOURCES ? " (the first of them)" : "";
    return el(
      "section",
      {},
      el("h3", {}, `Records below${more}`),
      el("ul", { class: "chips" }, node.sources.map((id) => el("li", {}, button(id, (event) => this.record(id, event.currentTarget), { kind: "chip" })))),
    );
  }

  async record(id, at) {
    at.disabled = true;
    try {
      const found = await get(`trees/${part(this.tree)}/events/${part(id)}`, {}, { signal: this.signal });
      if (found.leaves.length) this.on.select(found.leaves[0].id);
    } catch (error) {
      at.title = error.message;
    } finally {
      at.disabled = false;
    }
  }

  children(node) {
    if (!node.children.length) return null;
    return el(
      "section",
      {},
      el("h3", {}, "Largest parts"),
      el(
        "ul",
        { class: "parts" },
        node.children.map((child) =>
          el(
            "li",
            {},
            el(
              "button",
              { type: "button", class: "part", on: { click: () => this.on.select(child.id) } },
              el("span", { class: "part-text" }, shorten(title(child), 140)),
              el("span", { class: "row-count" }, child.kind === "leaf" ? icon("leaf") : number(child.descendants)),
            ),
          ),
        ),
      ),
    );
  }

  /** Why the item lies where it lies; drawn, too. */
  async why() {
    const { node } = this;
    if (node?.kind !== "leaf") return;
    const slot = this.route;
    slot.replaceChildren(el("section", { class: "route" }, el("h3", {}, "Why it lies here"), waiting(4, "Reading how it was placed")));
    try {
      const found = await get(`trees/${part(this.tree)}/events/${part(node.event_id)}/route`, {}, { signal: this.signal });
      const leaf = found.leaves.find((each) => each.leaf === node.id) ?? found.leaves[0];
      if (this.node !== node || !leaf) {
        if (!leaf) slot.replaceChildren(el("p", { class: "muted" }, "The change log has no placement of this item."));
        return;
      }
      const texts = await named(this.tree, leaf.decisions, this.signal);
      slot.replaceChildren(
        el(
          "section",
          { class: "route" },
          el("h3", {}, "Why it lies here"),
          el("p", { class: "muted" }, `As the tree stood before commit ${number(found.seq)}.`),
          decisions(leaf.decisions, texts, { on: this.on, end: leaf.expanded ? "It met another item, and a new topic took the place of both." : null }),
        ),
      );
      this.on.drawRoute(node, leaf, texts);
    } catch (error) {
      if (error.name === "AbortError") return;
      const reason = error.kind === "timeout" ? "Reading it back from the change log took too long; that grows with the tree." : error.message;
      slot.replaceChildren(el("section", { class: "route" }, el("h3", {}, "Why it lies here"), el("p", { class: "mistake", role: "alert" }, reason), error.kind === "invalid" ? null : button("Try again", () => this.why(), { kind: "small" })));
    }
  }
}

/** Heading and text: an extractive summary begins with its words. */
function parted(node) {
  if (node.kind === "root") return ["The whole tree", ""];
  if (node.kind === "leaf") return [node.title ?? node.speaker ?? "Item", node.text];
  const first = firstLine(node.text);
  return first.length < node.text.trim().length ? [first, node.text.trim().slice(first.length).trim()] : ["Summary", node.text];
}

function freshness(node) {
  if (node.kind !== "summary") return null;
  if (node.provisional) return el("span", { class: "badge warn" }, "provisional");
  return node.pending ? el("span", { class: "badge warn" }, `${counted(node.pending, "item")} pending`) : el("span", { class: "badge good" }, "fresh");
}

/** An address of somebody else's: a link only where it leads to the web. */
function link(address) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // Then it is only a text.
  }
  if (!url || !["http:", "https:"].includes(url.protocol)) return address;
  return el("a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank" }, address);
}

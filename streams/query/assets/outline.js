// The tree as an indented list. A topic's children are read when it is opened, the largest first, a page at a time.

import { get, part } from "./api.js";
import { button, compact, counted, debounced, el, icon, number, put, say, shorten, title, waiting } from "./dom.js";

const PAGE = 40;
const REFRESHED_MAX = 10;
const REFRESHED_PAGE_MAX = 200;

export class Outline {
  /** `on.select(id)`; `tree` is its name. */
  constructor(host, tree, on, signal) {
    this.host = host;
    this.tree = tree;
    this.on = on;
    this.signal = signal;
    this.open = new Map(); // id → { children, next, more }
    this.rows = new Map();
    this.nodes = new Map();
    this.selected = null;
    this.current = null;
    this.marked = new Set();
    this.list = el("div", { class: "outline-rows", role: "tree", "aria-label": "Outline of the tree", on: { keydown: (event) => this.press(event), click: (event) => this.click(event), dblclick: (event) => this.toggle(event) } });
    this.host.append(this.list);
    this.spoken = debounced(400, say);
  }

  async start() {
    this.list.replaceChildren(waiting(7, "Loading the outline"));
    try {
      await this.expand("root");
    } catch (error) {
      if (error.name === "AbortError") return;
      this.list.replaceChildren(el("p", { class: "pane-note", role: "none" }, `${error.message} `, button("Try again", () => this.start(), { kind: "small" })));
    }
  }

  // ----------------------------------------------------------------------------------------------------------------- reading

  async expand(id, count = PAGE) {
    const found = await this.read(id, 0, count);
    this.open.set(id, { children: found.children, next: found.next });
    this.render();
    return found;
  }

  async read(id, after, limit) {
    const found = await get(`trees/${part(this.tree)}/nodes/${part(id)}`, { order: "size", limit, after }, { signal: this.signal });
    for (const child of found.children) this.nodes.set(child.id, { ...child, parent: id });
    return found;
  }

  async more(id) {
    const opened = this.open.get(id);
    if (!opened?.next || opened.reading) return;
    opened.reading = true;
    try {
      const found = await this.read(id, opened.next, PAGE);
      const have = new Set(opened.children.map((child) => child.id));
      const first = found.children.find((child) => !have.has(child.id));
      opened.children.push(...found.children.filter((child) => !have.has(child.id)));
      opened.next = found.next;
      if (first) this.current = first.id;
      this.render();
      this.focus();
    } finally {
      opened.reading = false;
    }
  }

  /** Read again what is open: the latest opened first, as many as one may ask for in passing. */
  async refresh() {
    const ids = [...this.open.keys()];
    const again = ["root", ...ids.filter((id) => id !== "root").slice(-REFRESHED_MAX)];
    const seen = new Set(this.rows.keys());
    await Promise.all(
      again.map(async (id) => {
        const opened = this.open.get(id);
        if (!opened) return;
        try {
          const found = await this.read(id, 0, Math.min(REFRESHED_PAGE_MAX, Math.max(PAGE, opened.children.length)));
          if (this.open.get(id) !== opened) return;
          const have = new Set(found.children.map((child) => child.id));
          opened.children = [...found.children, ...opened.children.slice(REFRESHED_PAGE_MAX).filter((child) => !have.has(child.id))];
          if (opened.children.length <= REFRESHED_PAGE_MAX) opened.next = found.next;
        } catch (error) {
          if (error.kind === "node-not-found") this.open.delete(id);
        }
      }),
    );
    if (this.signal.aborted) return;
    this.render();
    for (const [id, row] of this.rows) if (!seen.has(id) && seen.size) row.classList.add("new");
  }

  /** Open what lies above a node, and show it. `path` has the ids above it, the uppermost first. */
  async reveal(id, path) {
    let above = "root";
    for (const each of [...path, id]) {
      const opened = this.open.get(above) ?? (await this.expand(above));
      const children = this.open.get(above)?.children ?? opened.children;
      if (!children.some((child) => child.id === each)) {
        // It is small: it stands before the others here, rather than after hundreds of them.
        const found = await get(`trees/${part(this.tree)}/nodes/${part(each)}`, { limit: 0 }, { signal: this.signal });
        if (!children.some((child) => child.id === each)) children.unshift(found);
        this.nodes.set(each, { ...found, parent: above });
      }
      if (each !== id && !this.open.has(each)) await this.expand(each);
      above = each;
    }
    this.render();
    this.select(id);
    this.rows.get(id)?.scrollIntoView({ block: "nearest" });
  }

  // ----------------------------------------------------------------------------------------------------------------- drawing

  render() {
    const rows = [];
    const visit = (id, level) => {
      const opened = this.open.get(id);
      if (!opened) return;
      opened.children.forEach((child, at) => {
        rows.push(this.row(child, level, at + 1, opened.next ? -1 : opened.children.length));
        visit(child.id, level + 1);
      });
      if (opened.next) rows.push(this.moreRow(id, level));
    };
    const focused = this.list.contains(document.activeElement);
    const kept = this.rows;
    this.rows = new Map();
    this.kept = kept;
    visit("root", 1);
    this.list.replaceChildren(...(rows.length ? rows : [el("p", { class: "pane-note", role: "none" }, "Nothing lies in this tree yet.")]));
    if (!this.rows.has(this.current)) this.current = rows[0]?.dataset.id ?? null;
    for (const [id, row] of this.rows) row.tabIndex = id === this.current ? 0 : -1;
    if (focused) this.focus();
  }

  row(child, level, place, size) {
    const leaf = child.kind === "leaf";
    const open = this.open.has(child.id);
    const row = this.kept.get(child.id) ?? el("div", { role: "treeitem", "data-id": child.id });
    const state = JSON.stringify([child.text, child.descendants, child.pending, level, open, leaf]);
    if (row.dataset.state !== state) {
      row.dataset.state = state;
      row.style.setProperty("--level", level);
      put(
        row,
        el("span", { class: "twist" }, leaf ? icon("leaf") : icon("chevron")),
        el("span", { class: "row-text" }, leaf && child.speaker ? el("b", {}, `${child.speaker} `) : null, shorten(title(child), 160)),
        leaf ? null : el("span", { class: "row-count", title: counted(child.descendants, "item") }, compact(child.descendants)),
        child.pending ? el("span", { class: "dot warn", role: "img", "aria-label": `${number(child.pending)} pending`, title: `${counted(child.pending, "item")} not in this summary yet` }) : null,
      );
    }
    row.setAttribute("class", `row ${child.kind}${this.marked.has(child.id) ? " marked" : ""}`);
    row.setAttribute("aria-level", level);
    row.setAttribute("aria-posinset", place);
    row.setAttribute("aria-setsize", size);
    row.setAttribute("aria-selected", String(child.id === this.selected));
    if (leaf) row.removeAttribute("aria-expanded");
    else row.setAttribute("aria-expanded", String(open));
    this.rows.set(child.id, row);
    return row;
  }

  moreRow(id, level) {
    const row = el("div", { class: "row more", role: "treeitem", "data-more": id, "data-id": `more ${id}`, "aria-level": level, "aria-selected": "false", vars: { "--level": level } }, el("span", { class: "twist" }, icon("down")), el("span", { class: "row-text" }, "Show more"));
    this.rows.set(`more ${id}`, row);
    return row;
  }

  select(id) {
    this.selected = id;
    if (this.rows.has(id)) this.move(id, false);
    for (const [each, row] of this.rows) row.setAttribute("aria-selected", String(each === id));
  }

  /** Mark the nodes of a path. */
  mark(ids) {
    this.marked = new Set(ids);
    for (const [id, row] of this.rows) row.classList.toggle("marked", this.marked.has(id));
  }

  // ---------------------------------------------------------------------------------------------------------------- doing

  focus() {
    this.rows.get(this.current)?.focus({ preventScroll: true });
    this.rows.get(this.current)?.scrollIntoView({ block: "nearest" });
  }

  move(id, focus = true) {
    if (!this.rows.has(id)) return;
    this.rows.get(this.current)?.setAttribute("tabindex", "-1");
    this.current = id;
    this.rows.get(id).tabIndex = 0;
    if (focus) this.focus();
  }

  async turn(id, open) {
    if (open === this.open.has(id)) return;
    const row = this.rows.get(id);
    if (!open) {
      this.close(id);
      this.render();
      return;
    }
    row?.classList.add("reading");
    try {
      await this.expand(id);
    } catch (error) {
      if (error.name !== "AbortError") this.spoken(`Could not be opened: ${error.message}`);
    } finally {
      row?.classList.remove("reading");
    }
  }

  close(id) {
    for (const child of this.open.get(id)?.children ?? []) if (this.open.has(child.id)) this.close(child.id);
    this.open.delete(id);
  }

  click(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    const { id, more } = row.dataset;
    if (more) {
      this.more(more);
      return;
    }
    this.move(id);
    if (event.target.closest(".twist") && this.nodes.get(id)?.kind !== "leaf") this.turn(id, !this.open.has(id));
    else this.on.select(id);
  }

  toggle(event) {
    const id = event.target.closest(".row")?.dataset.id;
    if (id && !event.target.closest(".twist") && this.nodes.get(id)?.kind === "summary") this.turn(id, !this.open.has(id));
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const ids = [...this.rows.keys()];
    const at = ids.indexOf(this.current);
    const node = this.nodes.get(this.current);
    const topic = node?.kind === "summary";
    const action = {
      ArrowDown: () => this.move(ids[at + 1]),
      ArrowUp: () => this.move(ids[at - 1]),
      Home: () => this.move(ids[0]),
      End: () => this.move(ids.at(-1)),
      PageDown: () => this.move(ids[Math.min(ids.length - 1, at + 10)]),
      PageUp: () => this.move(ids[Math.max(0, at - 10)]),
      ArrowRight: () => (topic && !this.open.has(node.id) ? this.turn(node.id, true) : topic && this.move(ids[at + 1])),
      ArrowLeft: () => (topic && this.open.has(node.id) ? this.turn(node.id, false) : node && this.move(node.parent)),
      Enter: () => (this.current?.startsWith("more ") ? this.more(this.current.slice(5)) : this.on.select(this.current)),
      " ": () => (this.current?.startsWith("more ") ? this.more(this.current.slice(5)) : this.on.select(this.current)),
    }[event.key];
    if (!action || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }
}

// One tree: rings and outline side by side, a node, a search and what happens beside them; all of it follows the commits.

import { Activity } from "./activity.js";
import { get, part } from "./api.js";
import { blank, brief, button, bytes, compact, counted, el, icon, number, shorten, title, waiting } from "./dom.js";
import { NodePanel } from "./node.js";
import { Outline } from "./outline.js";
import { Rings } from "./rings.js";
import { routePath } from "./route.js";
import { SearchPanel } from "./search.js";

const DRAWN = { nodes: 900, children: 300, characters: 80 };
const REFRESH_MIN = 1_500;
const REFRESH_SHARE = 6; // of the time, at most one part in so many is spent on refreshing
const PANES = [
  ["map", "Map", "map"],
  ["outline", "Outline", "list"],
  ["node", "Node", "leaf"],
  ["search", "Search", "search"],
  ["activity", "Activity", "pulse"],
];

export class TreeView {
  constructor(host, at) {
    this.host = host;
    this.name = at.tree;
    this.at = at;
    this.stop = new AbortController();
    this.focus = "root";
    this.sizes = new Map();
  }

  async start() {
    this.frame();
    this.host.append(this.page);
    const { signal } = this.stop;
    // All at once: the figures may take longer than the map where many summaries wait.
    const drawing = [this.draw(), this.outline.start()];
    try {
      this.stats = await get(`trees/${part(this.name)}`, {}, { signal });
    } catch (error) {
      this.failed(error);
      return;
    }
    this.head();
    this.search.offer(this.stats.strategies);
    this.activity = new Activity(
      this.panes.activity,
      this.meter,
      this.name,
      { commits: (commit, leaves) => this.came(commit, leaves), back: () => this.back(), record: (id, at) => this.node.record(id, at), state: (state) => this.live(state) },
      signal,
    );
    await Promise.all(drawing);
    if (signal.aborted) return;
    this.activity.start(this.stats.seq);
    this.follow(this.at);
    if (!this.selected) this.node.show("root");
  }

  frame() {
    const { signal } = this.stop;
    const pane = (name, label, attributes = {}) => el("section", { class: `pane ${name}`, id: `pane-${name}`, "aria-label": label, ...attributes });
    this.panes = {
      outline: pane("outline", "Outline"),
      map: pane("map", "Map"),
      node: pane("node", "Node", { role: "tabpanel", tabindex: "0" }),
      search: pane("search", "Search", { role: "tabpanel", tabindex: "0" }),
      activity: pane("activity", "Activity", { role: "tabpanel", tabindex: "0" }),
    };
    this.heading = el("h1", {}, this.name);
    this.figures = el("dl", { class: "figures" }, waiting(1, "Loading the figures"));
    this.meter = el("div", { class: "meter" });
    this.ask = el("div", { class: "ask-slot" });
    this.stage = el("div", { class: "stage" });
    this.trail = el("nav", { class: "trail", "aria-label": "What is drawn" });
    this.note = el("p", { class: "map-note muted" });
    this.stage.append(waiting(1, "Loading the map"));
    this.picked = el("div", { class: "picked", hidden: true });
    this.panes.map.append(this.trail, this.stage, this.note, this.picked);
    this.panes.outline.append(el("h2", { class: "pane-head" }, "Outline"));
    const tab = ([name, label]) => el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `pane-${name}`, "data-pane": name, on: { click: () => this.turn(name), keydown: (event) => this.tabs(event) } }, label);
    this.sideTabs = PANES.slice(2).map(tab);
    this.side = el("div", { class: "side" }, el("div", { class: "side-tabs", role: "tablist", "aria-label": "Beside the map" }, this.sideTabs), this.panes.node, this.panes.search, this.panes.activity);
    this.bottom = PANES.map(([name, label, glyph]) => el("button", { type: "button", "data-pane": name, on: { click: () => this.turn(name, true) } }, icon(glyph), label));
    this.page = el(
      "div",
      { class: "tree-page" },
      el("div", { class: "tree-head" }, el("div", { class: "tree-title" }, this.heading, this.figures), this.meter, this.ask),
      el("div", { class: "workspace" }, this.panes.outline, this.panes.map, this.side),
      el("nav", { class: "bottom", "aria-label": "Parts of the page" }, this.bottom),
    );
    this.turn("node");
    this.page.dataset.pane = "map";
    this.mark();
    const on = {
      select: (id, path) => this.select(id, path),
      zoom: (id) => this.zoom(id),
      draw: (paths) => this.trace(paths),
      drawRoute: (node, leaf, texts) => this.traceRoute(node, leaf, texts),
      asked: (query) => {
        this.turn("search", matchMedia("(max-width: 760px)").matches);
        this.put({ query });
      },
    };
    this.outline = new Outline(this.panes.outline, this.name, on, signal);
    this.node = new NodePanel(this.panes.node, this.name, on, signal);
    this.search = new SearchPanel(this.panes.search, this.ask, this.name, on, signal);
    this.node.empty();
    this.panes.activity.append(waiting(5, "Loading what has happened"));
  }

  failed(error) {
    if (error.name === "AbortError") return;
    this.stop.abort();
    const gone = error.kind === "tree-not-found";
    const heading = gone ? "There is no such tree" : error.title;
    const text = gone ? `No tree “${this.name}” is here, or the key does not reach it.` : error.message;
    const actions = [gone ? el("a", { class: "button primary", href: "#/" }, "All trees") : button("Try again", () => this.again(), { kind: "primary" })];
    this.broken = true;
    this.host.replaceChildren(blank({ heading, text, kind: "error", actions }));
  }

  again() {
    this.stop.abort();
    this.stop = new AbortController();
    this.broken = false;
    this.rings = null;
    this.host.replaceChildren();
    this.start();
  }

  end() {
    this.stop.abort();
    clearTimeout(this.due);
    document.getElementById("state").replaceChildren();
    document.getElementById("tip").hidden = true;
  }

  refresh() {
    if (this.broken || !this.rings) this.again();
    else this.renew();
  }

  // -------------------------------------------------------------------------------------------------------------- figures

  head() {
    const { stats } = this;
    const figures = [
      ["Items", compact(stats.leaves), number(stats.leaves)],
      ["Topics", compact(stats.summaries), number(stats.summaries)],
      ["Depth", number(stats.depth_max), null],
      ["Pending", stats.pending ? compact(stats.pending) : "none", `${counted(stats.contributions, "item")} not in a summary yet`],
      ["Commit", number(stats.seq), null],
      ["Size", bytes(stats.bytes), null],
    ];
    this.figures.replaceChildren(...figures.map(([name, value, full]) => el("div", { class: `figure-box ${name === "Pending" && stats.pending ? "warn" : ""}`, title: full, "data-figure": name.toLowerCase() }, el("dt", {}, name), el("dd", {}, value))));
  }

  live(state) {
    const words = { live: "Live", connecting: "Connecting", off: "Not live" };
    document.getElementById("state").replaceChildren(el("span", { class: `live-dot ${state}` }), words[state]);
  }

  // ------------------------------------------------------------------------------------------------------------------ map

  async draw() {
    const { signal } = this.stop;
    try {
      const started = performance.now();
      const [drawn, above] = await Promise.all([
        get(`trees/${part(this.name)}/map`, { node: this.focus, ...DRAWN }, { signal }),
        this.focus === "root" ? null : get(`trees/${part(this.name)}/nodes/${part(this.focus)}`, { limit: 0 }, { signal }),
      ]);
      this.cost = performance.now() - started;
      if (signal.aborted) return;
      if (!this.rings) {
        this.stage.replaceChildren();
        this.rings = new Rings(this.stage, { select: (id) => this.select(id), zoom: (id) => this.zoom(id) });
      }
      const changed = this.compare(drawn);
      this.rings.show(drawn, above?.parent ?? null, changed);
      this.showTrail(above);
      if (!drawn.children.length) this.note.textContent = "Nothing lies here yet. The map grows as records come in.";
      else this.note.textContent = unread(drawn);
      performance.mark("banyan-drawn");
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.kind === "node-not-found" && this.focus !== "root") {
        this.focus = "root";
        await this.draw();
        return;
      }
      if (!this.rings) this.stage.replaceChildren(blank({ heading: error.title, text: error.message, kind: "error", actions: [button("Try again", () => this.draw())] }));
    }
  }

  /** What has grown since it was drawn before. */
  compare(drawn) {
    const before = this.sizes;
    const changed = new Set();
    this.sizes = new Map();
    const visit = (node) => {
      this.sizes.set(node.id, node.descendants);
      if (before.size && before.get(node.id) !== node.descendants && node.id !== drawn.id) changed.add(node.id);
      node.children.forEach(visit);
    };
    visit(drawn);
    return this.drawnFocus === this.focus ? changed : ((this.drawnFocus = this.focus), new Set());
  }

  showTrail(above) {
    const steps = above ? [{ id: "root", text: "Whole tree" }, ...above.path, above] : [];
    this.trail.hidden = !steps.length;
    this.trail.replaceChildren(
      ...steps.flatMap((each, at) => (at < steps.length - 1 ? [button(each.id === "root" ? "Whole tree" : brief(each), () => this.zoom(each.id), { kind: "link" }), icon("chevron")] : [el("span", { "aria-current": "true" }, shorten(title(each), 60))])),
    );
  }

  async zoom(id) {
    if (!id || id === this.focus) return;
    this.focus = id;
    await this.draw();
    this.rings?.select(this.selected ?? null);
  }

  trace(paths) {
    this.paths = paths;
    this.rings?.draws(paths);
    const strong = paths.find((path) => path.strong);
    this.outline.mark(strong ? strong.nodes.map((node) => node.id) : []);
    if (strong && this.focus !== "root" && !strong.nodes.some((node) => node.id === this.focus)) this.zoom("root");
  }

  traceRoute(node, leaf, texts) {
    const { refused } = routePath(leaf.decisions, texts, node);
    const onTheWay = refused && node.path.some((each) => each.id === refused.id);
    this.trace([{ nodes: [...node.path.map((each) => ({ ...each, kind: "summary" })), node], refused: onTheWay ? null : refused, strong: true, label: "" }]);
  }

  // ------------------------------------------------------------------------------------------------------------- choosing

  /** Show a node everywhere. */
  async select(id) {
    if (!id) return;
    this.put({ node: id });
    await this.choose(id);
  }

  async choose(id) {
    this.selected = id;
    this.turn("node", this.page.dataset.pane !== "map");
    this.rings?.select(id);
    const node = await this.node.show(id);
    if (!node || this.selected !== id) return;
    this.picked.hidden = id === "root";
    this.picked.replaceChildren(el("p", {}, node.kind === "leaf" ? el("b", {}, `${node.speaker ?? "Item"} `) : el("b", {}, `${counted(node.descendants, "item")} `), shorten(title(node), 160)), button("Details", () => this.turn("node", true), { kind: "small" }));
    const path = node.path.map((each) => each.id);
    if (id !== "root") this.trace([{ nodes: [...node.path.map((each) => ({ ...each, kind: "summary" })), node], strong: true, label: "" }]);
    this.rings?.select(id);
    if (id === "root") this.outline.select(null);
    else await this.outline.reveal(id, path).catch(() => {});
    document.title = `${brief(node)} · ${this.name} · Banyan`;
  }

  clear() {
    this.selected = null;
    this.picked.hidden = true;
    this.rings?.select(null);
    this.trace([]);
    this.outline.select(null);
    this.node.show("root");
    this.put({});
  }

  /** The address says what is shown, without a new page. */
  put({ node = null, query = null }) {
    const hash = `#/t/${part(this.name)}${node ? `/n/${part(node)}` : ""}${query ? `?q=${part(query)}` : ""}`;
    if (location.hash !== hash) history.pushState(null, "", hash);
  }

  /** The address was changed. */
  go(at) {
    this.follow(at);
  }

  follow(at) {
    if (at.node && at.node !== this.selected) this.choose(at.node);
    else if (at.query && at.query !== this.search.query) this.search.ask(at.query);
  }

  // ---------------------------------------------------------------------------------------------------------------- panes

  turn(name, show = false) {
    if (name in { node: 1, search: 1, activity: 1 }) this.page.dataset.side = name;
    if (show) this.page.dataset.pane = name;
    this.mark();
  }

  mark() {
    for (const tab of this.sideTabs) {
      const chosen = tab.dataset.pane === this.page.dataset.side;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      this.panes[tab.dataset.pane].classList.toggle("shown", chosen);
    }
    for (const each of this.bottom) {
      if (each.dataset.pane === this.page.dataset.pane) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    }
  }

  tabs(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = this.sideTabs.indexOf(event.currentTarget);
    const next = this.sideTabs[(at + step + this.sideTabs.length) % this.sideTabs.length];
    this.turn(next.dataset.pane, true);
    next.focus();
    event.preventDefault();
  }

  /** A key; whether it meant something. */
  press(event) {
    const side = { 1: "node", 2: "search", 3: "activity" }[event.key];
    if (event.key === "/") this.search.input.focus();
    else if (event.key === "Escape") this.clear();
    else if (event.key === "z" && this.node.node?.kind === "summary") this.zoom(this.node.node.id);
    else if (event.key === "Backspace" && this.rings?.root.parent) this.zoom(this.rings.root.parent);
    else if (event.key === "w" && this.node.node?.kind === "leaf") this.node.why();
    else if (side) this.turn(side, true);
    else return false;
    return true;
  }

  // --------------------------------------------------------------------------------------------------------------- growth

  came(commit, leaves) {
    this.stats.seq = Math.max(this.stats.seq, commit.seq);
    this.stats.leaves += leaves;
    this.head();
    this.due ??= setTimeout(() => this.renew(), Math.max(REFRESH_MIN - (performance.now() - (this.renewed ?? 0)), (this.cost ?? 0) * REFRESH_SHARE, 300));
  }

  /** The tab is seen again after a while: what happened meanwhile is not gone through one by one. */
  async back() {
    await this.renew();
    if (!this.stop.signal.aborted) await this.activity.start(this.stats.seq);
  }

  /** Read again what is shown. */
  async renew() {
    const { signal } = this.stop;
    this.due = -1;
    try {
      await Promise.all([
        get(`trees/${part(this.name)}`, {}, { signal }).then((stats) => {
          this.stats = stats;
          this.head();
        }),
        document.hidden ? null : this.draw(),
        document.hidden ? null : this.outline.refresh(),
        this.selected && !document.hidden ? this.node.show(this.selected, { quiet: true }) : null,
      ]);
      this.rings?.select(this.selected);
    } catch {
      // The next commit tries again; what is wrong is said by those who asked.
    } finally {
      this.renewed = performance.now();
      this.due = null;
    }
  }
}

/** What the map may lack. */
function unread(drawn) {
  const wide = (node) => node.unread || node.children.some(wide);
  return wide(drawn) ? "Of a topic with more than 20,000 parts the map knows only the oldest 20,000; the outline has them all." : "";
}

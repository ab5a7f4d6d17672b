// The tree as rings: the whole in the middle, topics around it, what they are made of further out. Paths are drawn over it.

import { counted, el, number, put, shorten, svg, title } from "./dom.js";
import { baseline, descent, edge, layout, middle, radii, shape, spoke, weight } from "./layout.js";

const OUTER = 490;
const LEVELS_MIN = 2;
const LABELS_MAX = 70;
const GROWN_MS = 1_600;
const SENTENCE_MIN = 9; // characters below which half a word says nothing
const SAID = /^[^:]{1,60} \(\d{4}-\d\d-\d\d\): /; // who and when: what was said is worth the room
const WIDE = 8.5; // of a letter, in the picture's units

export class Rings {
  /** `on.select(id)`, `on.zoom(id)`. */
  constructor(host, on) {
    this.host = host;
    this.on = on;
    this.arcs = new Map();
    this.paths = [];
    this.root = null;
    this.selected = null;
    this.tip = document.getElementById("tip");
    this.below = svg("g", { class: "arcs" });
    this.labels = svg("g", { class: "arc-labels", "aria-hidden": "true" });
    this.lines = svg("g", { class: "lines" });
    this.amount = svg("text", { class: "centre-amount", y: "-4" });
    this.unit = svg("text", { class: "centre-unit", y: "26" });
    this.centre = svg("circle", { class: "centre", r: "1" });
    this.hub = svg("g", { class: "hub" }, this.centre, this.amount, this.unit);
    this.edges = svg("g", { class: "edges", "aria-hidden": "true" });
    this.picture = svg("svg", { viewBox: "-500 -500 1000 1000", class: "rings", role: "img", "aria-label": "The tree as rings" }, this.below, this.edges, this.labels, this.hub, this.lines);
    host.append(this.picture);
    this.below.addEventListener("click", (event) => this.click(event));
    this.hub.addEventListener("click", () => this.root?.parent && this.on.zoom(this.root.parent));
    this.picture.addEventListener("pointermove", (event) => this.hover(event));
    this.picture.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  /** Show a part of a tree, as the service draws it; `parent` is what lies above it, `changed` what has just changed. */
  show(root, parent, changed = new Set()) {
    this.root = { ...root, parent };
    this.draw(changed);
  }

  /** Draw paths: each `{nodes: [{id, text, …}, …] from the uppermost on, strong, refused, label}`. */
  draws(paths) {
    this.paths = paths;
    if (this.root) this.draw();
  }

  select(id) {
    this.below.querySelector(".selected")?.classList.remove("selected");
    this.selected = id;
    this.arcs.get(id)?.element.classList.add("selected");
  }

  /** The tree that is drawn, with what the paths need beyond it. */
  whole() {
    const forced = new Set();
    const copies = new Map();
    const copy = (node) => {
      const made = { ...node, children: (node.children ?? []).map(copy) };
      copies.set(made.id, made);
      return made;
    };
    const root = copy(this.root);
    for (const path of this.paths) {
      const nodes = this.inside(path);
      if (nodes === null) continue;
      let above = root;
      for (const node of path.refused ? [...nodes, path.refused] : nodes) {
        let found = copies.get(node.id);
        if (!found) {
          found = { kind: "summary", descendants: 1, ...node, children: [], hidden: node.kind === "leaf" ? 0 : null };
          copies.set(node.id, found);
          above.children.push(found);
          if (above.hidden) above.hidden -= 1;
        }
        forced.add(node.id);
        if (node !== path.refused) above = found;
      }
    }
    return { root, forced };
  }

  /** What of a path lies below what is in the middle; null when it leads elsewhere. */
  inside(path) {
    const nodes = path.nodes.filter((node) => node.id !== "root");
    if (this.root.id === "root") return nodes;
    const at = nodes.findIndex((node) => node.id === this.root.id);
    return at < 0 ? null : nodes.slice(at + 1);
  }

  draw(changed = new Set()) {
    const { root, forced } = this.whole();
    const arcs = layout(root, forced);
    const levels = Math.max(LEVELS_MIN, ...arcs.map((arc) => arc.level));
    const centre = Math.max(78, 150 - levels * 9);
    this.bands = radii(levels, centre, OUTER);
    const before = this.arcs;
    this.arcs = new Map();
    const on = new Set(this.paths.filter((path) => path.strong).flatMap((path) => path.nodes.map((node) => node.id)));
    this.picture.classList.toggle("drawing", this.paths.some((path) => path.strong && (this.inside(path)?.length || path.refused)));
    const elements = arcs.map((arc) => {
      const id = arc.rest ? `${arc.node.id} rest` : arc.node.id;
      const element = before.get(id)?.element ?? svg("path", { class: "arc" });
      const [inner, outer] = this.bands[arc.level];
      element.setAttribute("d", shape(arc.from, arc.to, inner, outer));
      element.style.setProperty("--h", arc.hue.toFixed(0));
      const width = (arc.to - arc.from) * outer;
      const classes = ["arc", `l${Math.min(6, arc.level)}`, arc.rest ? "rest" : arc.node.kind];
      if (width < 5) classes.push("thin");
      else if (width < 14) classes.push("narrow");
      if (arc.node.pending && !arc.rest) classes.push("pending");
      if (on.has(id)) classes.push("on-path");
      if (id === this.selected) classes.push("selected");
      if (changed.has(id)) classes.push("grown");
      element.setAttribute("class", classes.join(" "));
      this.arcs.set(id, { ...arc, element, inner, outer });
      element.dataset.id = id;
      return element;
    });
    this.below.replaceChildren(...elements);
    const behind = [...this.arcs.values()].filter((arc) => arc.node.pending && !arc.rest && (arc.to - arc.from) * arc.outer > 6);
    this.edges.replaceChildren(...behind.map((arc) => svg("path", { class: "edge", d: edge(arc.from + 0.002, arc.to - 0.002, arc.outer - 4) })));
    this.write(arcs, on);
    this.trace();
    this.centre.setAttribute("r", (centre - 5).toFixed(1));
    const leaves = root.kind === "root" ? (root.descendants ?? 0) : weight(root);
    this.amount.textContent = number(leaves);
    this.unit.textContent = leaves === 1 ? "item" : "items";
    this.hub.classList.toggle("zoomed", Boolean(this.root.parent));
    this.picture.setAttribute("aria-label", `The tree as rings: ${counted(leaves, "item")} below ${shorten(title(root), 80)}. The outline beside it has the same, for the keyboard.`);
    if (changed.size) {
      clearTimeout(this.calming);
      this.calming = setTimeout(() => this.below.querySelectorAll(".grown").forEach((each) => each.classList.remove("grown")), GROWN_MS);
    }
  }

  /** Texts on the arcs that have room for them: along the arc, or outwards. */
  write(arcs, on) {
    const drawn = [];
    for (const arc of arcs) {
      if (drawn.length >= LABELS_MAX * 2) break;
      const [inner, outer] = this.bands[arc.level];
      const long = (arc.to - arc.from) * ((inner + outer) / 2);
      const along = long > 84 && outer - inner > 22;
      if (!along && (long < 19 || outer - inner < 44)) continue;
      const words = arc.rest ? `${number(arc.rest)} more` : fitted(title(arc.node).replace(SAID, ""), Math.floor((along ? long - 24 : outer - inner - 22) / WIDE));
      if (!words) continue;
      const id = `along-${drawn.length}`;
      const d = along ? baseline(arc.from, arc.to, (inner + outer) / 2) : spoke(arc.from, arc.to, inner, outer);
      const anchored = along ? { href: `#${id}`, startOffset: "50%" } : { href: `#${id}` };
      const turned = !along && (arc.from + arc.to) / 2 >= Math.PI;
      if (turned) anchored.startOffset = "100%";
      const kind = arc.rest ? "rest" : on.has(arc.node.id) ? "on-path" : "";
      const classes = `arc-label ${kind} l${Math.min(6, arc.level)} ${along ? "" : turned ? "inwards" : "outwards"}`;
      drawn.push(svg("path", { id, d, fill: "none" }), svg("text", { class: classes }, svg("textPath", anchored, words)));
    }
    this.labels.replaceChildren(...drawn);
  }

  /** Lines from the middle to where the paths end. */
  trace() {
    this.lines.replaceChildren(
      ...this.paths.toSorted((one, other) => Number(one.strong) - Number(other.strong)).flatMap((path) => {
        const found = (this.inside(path) ?? []).map((node) => this.arcs.get(node.id)).filter(Boolean);
        const refusedArc = this.inside(path) && path.refused ? this.arcs.get(path.refused.id) : null;
        if (!found.length && !refusedArc) return [];
        const places = found.map((arc) => ({ radius: (arc.inner + arc.outer) / 2, angle: (arc.from + arc.to) / 2 }));
        const last = found.at(-1);
        const [x, y] = last ? middle(last.inner, last.outer, last.from, last.to) : [0, 0];
        const classes = `line ${path.strong ? "strong" : ""}`;
        const line = descent(places, this.bands[0][1] - 5);
        const drawn = last ? [svg("path", { class: `${classes} halo`, d: line, pathLength: "1" }), svg("path", { class: classes, d: line, pathLength: "1" })] : [];
        if (refusedArc) {
          const [rx, ry] = middle(refusedArc.inner, refusedArc.outer, refusedArc.from, refusedArc.to);
          drawn.push(svg("path", { class: "line refused", d: `M ${x} ${y} L ${rx} ${ry}` }), svg("circle", { class: "refused-end", cx: rx, cy: ry, r: "6" }));
        }
        drawn.push(svg("circle", { class: `end ${path.strong ? "strong" : ""}`, cx: x, cy: y, r: path.label ? "13" : "8" }));
        if (path.label) drawn.push(svg("text", { class: `end-label ${path.strong ? "strong" : ""}`, x, y: y + 5 }, path.label));
        return drawn;
      }),
    );
  }

  click(event) {
    const id = event.target.dataset?.id;
    const arc = this.arcs.get(id);
    if (!arc) return;
    if (arc.rest) this.on.select(arc.node.id);
    else if (id === this.selected && arc.node.kind !== "leaf") this.on.zoom(id);
    else this.on.select(id);
  }

  hover(event) {
    const arc = this.arcs.get(event.target.dataset?.id);
    const overHub = this.hub.contains(event.target) && this.root?.parent;
    this.tip.hidden = event.pointerType === "touch" || (!arc && !overHub);
    if (this.tip.hidden) return;
    if (overHub) put(this.tip, el("span", {}, "One level up"));
    else if (arc.rest) put(this.tip, el("strong", {}, `${number(arc.rest)} more`), el("span", {}, `below ${shorten(title(arc.node), 120)}; the outline has them all`));
    else {
      const { node } = arc;
      const facts = [node.kind === "leaf" ? (node.speaker ?? "item") : counted(weight(node), "item"), node.pending ? `${number(node.pending)} pending` : null];
      put(this.tip, el("strong", {}, facts.filter(Boolean).join(" · ")), el("span", {}, shorten(title(node), 180)));
    }
    const { innerWidth, innerHeight } = window;
    const { offsetWidth, offsetHeight } = this.tip;
    this.tip.style.left = `${Math.min(event.clientX + 14, innerWidth - offsetWidth - 8)}px`;
    this.tip.style.top = `${event.clientY + 18 + offsetHeight > innerHeight ? event.clientY - offsetHeight - 12 : event.clientY + 18}px`;
  }
}

/** As many of a title's words as fit; of a sentence its beginning. */
function fitted(text, characters) {
  if (characters < 4) return "";
  const words = text.replace(/\s+/g, " ").split(" · ");
  let fits = words[0];
  for (const word of words.slice(1)) {
    if (fits.length + word.length + 3 > characters) break;
    fits += ` · ${word}`;
  }
  return fits.length <= characters || characters >= SENTENCE_MIN ? shorten(fits, characters) : "";
}

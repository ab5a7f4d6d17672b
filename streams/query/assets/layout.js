// Where each part of a tree lies on the rings: angles by number of leaves, a ring a level. Pure.

const TURN = Math.PI * 2;
const SMALLEST = 0.0035; // of a circle's radians: about a pixel on the outer rings
const ON_PATH = 0.06;
const GREEN = 152;
const HUES = 210;

/** How much of the circle a node takes. */
export const weight = (node) => Math.max(1, node.descendants ?? 0);

/**
 * Arcs of a tree, the innermost first.
 *
 * `root` has `children` and `hidden`, as the service draws it. `forced` are nodes that must be seen, by id: on paths. Gives
 * `{node, from, to, level, hue, rest}`; `rest` counts the nodes that stand together in one arc.
 */
export function layout(root, forced = new Set()) {
  const arcs = [];
  // Colours begin where the tree first parts: one or two topics at the top would leave all of it of one colour.
  const place = (node, from, to, level, hue, coloured) => {
    const children = node.children ?? [];
    if (!children.length) return;
    const span = to - from;
    const total = Math.max(weight(node), children.reduce((sum, child) => sum + weight(child), 0));
    const must = children.filter((child) => forced.has(child.id));
    const least = Math.min(ON_PATH, span / Math.max(1, must.length));
    const widened = new Map(must.filter((child) => (span * weight(child)) / total < least).map((child) => [child.id, least]));
    const taken = [...widened.values()].reduce((sum, each) => sum + each, 0);
    const free = total - children.reduce((sum, child) => sum + (widened.has(child.id) ? weight(child) : 0), 0);
    let at = from;
    let rest = node.hidden ?? 0;
    const parts = children.length + rest > 2;
    for (const child of children) {
      const size = widened.get(child.id) ?? (free > 0 ? ((span - taken) * weight(child)) / free : 0);
      if (size < SMALLEST && !forced.has(child.id)) {
        rest += 1;
        continue;
      }
      const own = coloured ? hue : GREEN + (HUES * (at + size / 2)) / TURN;
      arcs.push({ node: child, parent: node, from: at, to: at + size, level, hue: own, rest: 0 });
      place(child, at, at + size, level + 1, own, coloured || parts);
      at += size;
    }
    if (rest > 0 && to - at > SMALLEST) arcs.push({ node, parent: node, from: at, to, level, hue, rest });
  };
  place(root, 0, TURN, 1, GREEN, false);
  return arcs;
}

/** Radii of the rings: `[inner, outer]` by level, the outer ones thinner. */
export function radii(levels, centre, outer) {
  const shares = Array.from({ length: levels }, (_, at) => (at ? 0.88 ** at : 1.5));
  const sum = shares.reduce((total, share) => total + share, 0);
  const found = [[0, centre]];
  for (const share of shares) found.push([found.at(-1)[1], found.at(-1)[1] + ((outer - centre) * share) / sum]);
  return found;
}

const point = (radius, angle) => [radius * Math.sin(angle), -radius * Math.cos(angle)];
const text = (...values) => values.map((value) => (typeof value === "number" && !Number.isInteger(value) ? value.toFixed(2) : value)).join(" ");

/** The outline of an arc. */
export function shape(from, to, inner, outer) {
  if (to - from > TURN - 1e-6) {
    const half = (radius, sweep) => text("M", 0, -radius, "A", radius, radius, 0, 1, sweep, 0, radius, "A", radius, radius, 0, 1, sweep, 0, -radius, "Z");
    return `${half(outer, 1)} ${half(inner, 0)}`;
  }
  const large = to - from > Math.PI ? 1 : 0;
  return text("M", ...point(outer, from), "A", outer, outer, 0, large, 1, ...point(outer, to), "L", ...point(inner, to), "A", inner, inner, 0, large, 0, ...point(inner, from), "Z");
}

/** A line along the middle of an arc, for its text, which is not to stand on its head. */
export function baseline(from, to, radius) {
  const middle = (from + to) / 2;
  const below = middle > Math.PI / 2 && middle < (Math.PI * 3) / 2;
  const large = to - from > Math.PI ? 1 : 0;
  return below
    ? text("M", ...point(radius + 4, to), "A", radius + 4, radius + 4, 0, large, 0, ...point(radius + 4, from))
    : text("M", ...point(radius - 4, from), "A", radius - 4, radius - 4, 0, large, 1, ...point(radius - 4, to));
}

/** A line outwards through an arc that is too narrow for text along it. */
export function spoke(from, to, inner, outer) {
  const angle = (from + to) / 2;
  const ends = [point(inner + 7, angle + 4.5 / inner), point(outer - 5, angle + 4.5 / outer)];
  if (angle < Math.PI) return text("M", ...ends[0], "L", ...ends[1]);
  const turned = [point(outer - 5, angle - 4.5 / outer), point(inner + 7, angle - 4.5 / inner)];
  return text("M", ...turned[0], "L", ...turned[1]);
}

/** A line along the outer edge of an arc. */
export function edge(from, to, radius) {
  const end = to - from > TURN - 1e-6 ? to - 0.001 : to;
  return text("M", ...point(radius, from), "A", radius, radius, 0, end - from > Math.PI ? 1 : 0, 1, ...point(radius, end));
}

/** A line from the middle through the middles of arcs: a descent. It begins at the rim of the middle, `start` from its centre. */
export function descent(places, start) {
  if (!places.length) return "";
  let line = text("M", ...point(start, places[0].angle));
  let before = start;
  for (const { radius, angle } of places) {
    line += text(" Q", ...point(radius * 0.55 + before * 0.45, angle), ...point(radius, angle));
    before = radius;
  }
  return line;
}

export const middle = (inner, outer, from, to) => point((inner + outer) / 2, (from + to) / 2);

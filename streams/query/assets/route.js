// A way down the tree: at each depth the best child, its similarity against the threshold, and what followed from it.

import { get, part } from "./api.js";
import { button, el, shorten, title } from "./dom.js";

const WORDS = {
  enter: ["goes in", "good"],
  attach: ["stays here", "warn"],
  expand: ["makes a topic of both", "good"],
  stay: ["not by likeness", ""],
};
const BESIDE = ["goes here", "good"]; // nothing below is gone into, though it is near enough: a last layer, or the greatest depth

/** The nodes that decisions speak of, by id; those that are gone by now are left out. */
export async function named(tree, found, signal) {
  const ids = [...new Set(found.map((each) => each.best).filter(Boolean))];
  const nodes = await Promise.all(
    ids.map((id) => get(`trees/${part(tree)}/nodes/${part(id)}`, { limit: 0 }, { signal }).catch((error) => (error.name === "AbortError" ? Promise.reject(error) : null))),
  );
  return new Map(nodes.filter(Boolean).map((node) => [node.id, node]));
}

/** Decisions, from the root down. */
export function decisions(found, texts, { on, end = null }) {
  const top = Math.max(1, ...found.map((each) => Math.max(each.similarity, each.threshold)));
  const share = (value) => `${Math.max(0, Math.min(100, (value / top) * 100)).toFixed(1)}%`;
  const steps = found.map((each, at) => {
    const best = each.best ? texts.get(each.best) : null;
    const near = each.decision === "attach" && each.best !== null && each.similarity >= each.threshold;
    const [said, tone] = near ? BESIDE : (WORDS[each.decision] ?? [each.decision, "warn"]);
    const where = each.decision === "stay" ? `Step ${at + 1}` : `Depth ${each.depth}`;
    const nothing = each.note ? null : el("p", { class: "muted" }, "There was nothing below to compare with.");
    const measured = each.best !== null && Number.isFinite(each.similarity);
    return el(
      "li",
      { class: `step ${tone}` },
      el("div", { class: "step-head" }, el("span", { class: "step-depth" }, where), el("span", { class: `badge ${tone}` }, said)),
      each.best ? button(shorten(best ? title(best) : `${each.best} (gone by now)`, 120), () => best && on.select(best.id), { kind: "link", "aria-disabled": best ? null : "true" }) : nothing,
      measured
        ? el(
            "div",
            { class: "gauge", role: "img", "aria-label": `similarity ${each.similarity.toFixed(3)}, threshold ${each.threshold.toFixed(3)}` },
            el("span", { class: "gauge-fill", vars: { "--at": share(each.similarity) } }),
            el("span", { class: "gauge-mark", vars: { "--at": share(each.threshold) } }),
          )
        : null,
      measured
        ? el("p", { class: "step-figures" }, el("span", {}, "similarity ", el("b", {}, each.similarity.toFixed(3))), el("span", {}, each.similarity >= each.threshold ? "≥" : "<"), el("span", {}, "threshold ", el("b", {}, each.threshold.toFixed(3))))
        : null,
      each.note ? el("p", { class: "muted" }, `${each.note[0].toUpperCase()}${each.note.slice(1)}.`) : null,
    );
  });
  return el("ol", { class: "steps" }, steps, end ? el("li", { class: "step-end muted" }, end) : null);
}

/** What decisions come to as a path to be drawn: nodes that were entered, and the child that was not. */
export function routePath(found, texts, last = null) {
  const entered = found.filter((each) => each.decision === "enter" || each.decision === "expand");
  const nodes = entered.map((each) => texts.get(each.best)).filter(Boolean);
  const stopped = found.at(-1);
  const refused = stopped && stopped.decision === "attach" && stopped.best ? texts.get(stopped.best) : null;
  if (last && nodes.at(-1)?.id !== last.id) nodes.push(last);
  return { nodes, refused: refused && refused.id !== last?.id ? refused : null, strong: true, label: "" };
}

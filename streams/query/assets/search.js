// Questions: hits with the topics above them, and how a text like the question would go down the tree.

import { get, part } from "./api.js";
import { blank, brief, button, counted, el, number, put, say, shorten, waiting, when } from "./dom.js";
import { decisions, named, routePath } from "./route.js";

const K = 10;
const COMMON = new Set("about and are did does for from had has have her his how that the their them they this was were what when where which who why with you".split(" "));
const STRATEGIES = {
  hybrid: "Meaning and words",
  collapsed: "Meaning, all nodes",
  traversal: "Meaning, down the tree",
  bm25: "Words alone",
  agent: "A walk, step by step",
  descent: "Layer by layer",
  router: "Weighed by granularity",
};

export class SearchPanel {
  /** `on.draw(paths)`, `on.select(id, path)`, `on.asked(text)`. */
  constructor(host, bar, tree, on, signal) {
    Object.assign(this, { host, tree, on, signal, hits: [], cards: [], query: "" });
    this.input = el("input", { type: "search", class: "field", id: "query", placeholder: "Ask this memory…", "aria-label": "Ask this memory", autocomplete: "off", spellcheck: "false", enterkeyhint: "search", maxlength: "1000" });
    this.strategy = el("select", { class: "field", id: "strategy", "aria-label": "How to search", on: { change: () => this.query && this.ask(this.query) } });
    this.offer(["hybrid"]);
    this.input.addEventListener("keydown", (event) => this.press(event));
    bar.append(
      el(
        "form",
        {
          class: "ask",
          role: "search",
          on: {
            submit: (event) => {
              event.preventDefault();
              this.ask(this.input.value.trim());
            },
          },
        },
        this.input,
        this.strategy,
        el("button", { type: "submit", class: "button primary" }, "Search"),
      ),
    );
    this.empty();
  }

  /** Ways to search that the tree's structure has. */
  offer(strategies) {
    const chosen = this.strategy.value;
    this.strategy.replaceChildren(...strategies.map((value) => el("option", { value }, STRATEGIES[value] ?? value)));
    if (strategies.includes(chosen)) this.strategy.value = chosen;
  }

  empty() {
    this.hits = [];
    this.cards = [];
    this.query = "";
    this.host.replaceChildren(blank({ heading: "Ask this memory", text: "Hits stand here, and the way to each is drawn on the tree." }));
  }

  async ask(query) {
    if (!query) return;
    this.query = query;
    this.input.value = query;
    this.on.asked(query);
    this.asking?.abort();
    this.asking = new AbortController();
    const signal = AbortSignal.any([this.signal, this.asking.signal]);
    this.host.replaceChildren(waiting(7, "Searching"));
    try {
      const answer = await get(`trees/${part(this.tree)}/explain`, { query, k: K, strategy: this.strategy.value }, { signal });
      const texts = await named(this.tree, answer.route, signal);
      this.show(answer, texts);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.host.replaceChildren(blank({ heading: error.title, text: error.message, kind: "error", actions: [button("Try again", () => this.ask(query))] }));
    }
  }

  show(answer, texts) {
    this.hits = answer.hits;
    const best = Math.max(...answer.hits.map((hit) => hit.score), 1e-9);
    this.cards = answer.hits.map((hit, at) => this.card(hit, at, best));
    const said = answer.hits.length ? `${counted(answer.hits.length, "hit")}, as of commit ${number(answer.seq)}` : "Nothing was found";
    say(said);
    this.route = { found: answer.route, texts };
    put(
      this.host,
      [
        answer.degraded ? el("p", { class: "notice warn", role: "status" }, answer.degraded) : null,
        el("p", { class: "muted found" }, said),
        answer.hits.length ? el("ol", { class: "hits" }, this.cards) : blank({ heading: "Nothing was found", text: "Try other words, or another way of searching." }),
        answer.route.length ? this.descent(answer.route, texts) : null,
      ],
    );
    this.draw(0);
  }

  card(hit, at, best) {
    const where = hit.path.map(brief).join(" › ");
    const facts = [hit.kind === "summary" ? counted(hit.descendants, "item") : hit.speaker, hit.source].filter(Boolean).join(" · ");
    const card = el(
      "button",
      { type: "button", class: "hit", "data-id": hit.id, on: { click: () => this.on.select(hit.id, hit.path.map((each) => each.id)), focus: () => this.draw(at), pointerenter: () => this.draw(at), keydown: (event) => this.press(event) } },
      el(
        "span",
        { class: "hit-head" },
        el("span", { class: "hit-rank" }, String(at + 1)),
        el("span", { class: `badge kind ${hit.kind}` }, hit.kind === "leaf" ? "Item" : "Topic"),
        el("span", { class: "muted" }, facts),
        hit.at ? el("span", { class: "muted" }, when(hit.at)) : null,
        hit.pending ? el("span", { class: "badge warn" }, `${number(hit.pending)} pending`) : null,
      ),
      el("span", { class: "hit-text" }, marked(hit.title ? `${hit.title}: ${hit.text}` : hit.text, this.query)),
      where ? el("span", { class: "hit-path" }, where) : null,
      el("span", { class: "score", title: `score ${hit.score.toFixed(4)}${parts(hit)}` }, el("span", { class: "score-fill", vars: { "--at": `${Math.max(2, (hit.score / best) * 100).toFixed(1)}%` } })),
    );
    return el("li", {}, card);
  }

  descent(route, texts) {
    return el(
      "details",
      { class: "would" },
      el("summary", {}, "Where a text like this would go"),
      el("div", { class: "actions" }, button("Draw it on the tree", () => this.on.draw([routePath(route, texts)]), { glyph: "map", kind: "small" })),
      decisions(route, texts, { on: this.on }),
    );
  }

  /** Draw all hits, one of them strongly. */
  draw(strong) {
    if (!this.hits.length) {
      this.on.draw([]);
      return;
    }
    this.strong = strong;
    this.on.draw(
      this.hits.map((hit, at) => ({
        nodes: [...hit.path.map((each) => ({ ...each, kind: "summary" })), { id: hit.id, text: hit.text, kind: hit.kind, descendants: hit.descendants, pending: hit.pending, speaker: hit.speaker }],
        strong: at === strong,
        label: String(at + 1),
      })),
    );
    this.cards.forEach((card, at) => card.firstChild.classList.toggle("active", at === strong));
  }

  press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !this.cards.length) return;
    event.preventDefault();
    event.stopPropagation();
    const at = event.target === this.input ? -1 : this.cards.findIndex((card) => card.contains(event.target));
    const next = at + step;
    if (next < 0) this.input.focus();
    else this.cards[Math.min(next, this.cards.length - 1)].firstChild.focus();
  }
}

function parts(hit) {
  return Object.entries(hit.parts ?? {})
    .map(([name, value]) => `, ${name} ${Number(value).toFixed(3)}`)
    .join("");
}

/** A text around the first word of the question that it has, with all of them marked. */
function marked(text, query) {
  const words = [...new Set(query.toLowerCase().match(/[\p{L}\p{N}]{3,}/gu) ?? [])].filter((word) => !COMMON.has(word)).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!words.length) return [shorten(text, 320)];
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(${words.join("|")})`, "giu");
  const first = Math.max(0, text.search(pattern) - 90);
  const shown = (first > 0 ? "…" : "") + shorten(text.slice(first), 320);
  return shown.split(pattern).map((piece, at) => (at % 2 ? el("mark", {}, piece) : piece));
}

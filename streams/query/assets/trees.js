// The trees that the key reaches.

import { address, get, key, part } from "./api.js";
import { blank, bytes, button, compact, counted, debounced, el, number, rate, waiting } from "./dom.js";

const EVERY = 4_000;
const PAGE = 100;

export class TreesView {
  constructor(host) {
    this.host = host;
    this.rows = new Map();
    this.seen = new Set();
    this.stop = new AbortController();
  }

  start() {
    this.filter = el("input", {
      type: "search",
      class: "field",
      id: "filter",
      placeholder: "Filter by name",
      "aria-label": "Filter trees by name",
      autocomplete: "off",
      spellcheck: "false",
      on: { input: debounced(80, () => this.narrow()) },
    });
    this.total = el("p", { class: "muted", id: "trees-total" });
    this.body = el("div", { class: "trees" }, waiting(6, "Loading trees"));
    this.host.append(el("section", { class: "home" }, el("div", { class: "home-head" }, el("div", {}, el("h1", {}, "Trees"), this.total), this.filter), this.body));
    this.watch = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) this.seen.add(target.dataset.tree);
        else this.seen.delete(target.dataset.tree);
        if (isIntersecting && !this.rows.get(target.dataset.tree)?.stats) this.measure(target.dataset.tree);
      }
    });
    this.load("");
    this.timer = setInterval(() => document.hidden || this.tick(), EVERY);
  }

  end() {
    this.stop.abort();
    clearInterval(this.timer);
    this.watch?.disconnect();
  }

  refresh() {
    if (this.rows.size) this.tick();
    else this.load("");
  }

  press(event) {
    if (event.key !== "/") return false;
    this.filter.focus();
    return true;
  }

  async load(after) {
    try {
      const page = await get("trees", { limit: PAGE, after: after || null }, { signal: this.stop.signal });
      if (!after) this.begin();
      for (const tree of page.trees) this.add(tree);
      this.more.hidden = page.next === null;
      this.next = page.next;
      this.narrow();
    } catch (error) {
      if (error.name !== "AbortError" && !after) {
        this.body.replaceChildren(blank({ heading: error.title ?? "The trees could not be read", text: error.message, kind: "error", actions: [button("Try again", () => this.load(""))] }));
      }
    }
  }

  begin() {
    this.rows.clear();
    this.watch.disconnect();
    const heads = ["Name", "Items", "Topics", "Rate", "Summaries", "Size"].map((text, at) => el("span", { role: "columnheader", class: at ? "figure" : null }, text));
    this.list = el("div", { class: "tree-rows", role: "rowgroup" });
    this.table = el("div", { class: "tree-table", role: "table", "aria-labelledby": "trees-total" }, el("div", { role: "rowgroup" }, el("div", { class: "tree-row heads", role: "row" }, heads)), this.list);
    this.more = button("More trees", () => this.load(this.next));
    this.nothing = el("div", { class: "nothing", hidden: true });
    this.body.replaceChildren(this.table, this.nothing, this.more);
  }

  add(tree) {
    if (this.rows.has(tree.tree)) return;
    const cell = (label) => el("span", { class: "figure bone-text", role: "cell", "data-label": label }, "–");
    const cells = { leaves: cell("Items"), topics: cell("Topics"), rate: cell("Rate"), pending: cell("Summaries"), bytes: cell("Size") };
    const about = el("span", { class: "muted" }, described(tree));
    const name = el(
      "span",
      { class: "tree-name", role: "cell" },
      el("a", { href: `#/t/${part(tree.tree)}` }, tree.tree),
      about,
    );
    const row = el("div", { class: "tree-row", role: "row", "data-tree": tree.tree }, name, Object.values(cells));
    row.addEventListener("click", (event) => {
      if (!event.target.closest("a") && !String(getSelection())) location.hash = `#/t/${part(tree.tree)}`;
    });
    this.rows.set(tree.tree, { row, cells, about, stats: null, rate: null });
    // By name, wherever it comes from: one that is made while others are shown stands among them.
    const after = (this.list.lastElementChild?.dataset.tree ?? "") > tree.tree ? [...this.list.children].find((each) => each.dataset.tree > tree.tree) : null;
    this.list.insertBefore(row, after);
    this.watch.observe(row);
  }

  narrow() {
    const wanted = this.filter.value.trim().toLowerCase();
    let shown = 0;
    for (const [name, { row }] of this.rows) {
      row.hidden = !name.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    this.total.textContent = this.rows.size ? `${counted(this.rows.size, "tree")}${this.next ? " so far" : ""}${wanted ? `, ${number(shown)} shown` : ""}` : "";
    this.table.hidden = !shown;
    this.filter.hidden = !this.rows.size;
    this.nothing.hidden = Boolean(shown);
    if (!shown) this.nothing.replaceChildren(wanted && this.rows.size ? blank({ heading: "No tree of that name", text: `None of the trees that are loaded has “${this.filter.value.trim()}” in its name.` }) : this.first());
  }

  first() {
    const lines = [
      `curl ${address("trees/user-42/turns")}`,
      ...(key() ? ['-H "Authorization: Bearer $KEY"'] : []),
      "-H 'Content-Type: application/json'",
      `-d '{"id":"t-1","speaker":"Ana","text":"I moved to Porto."}'`,
    ];
    const empty = blank({ heading: "No trees yet", text: `A tree is made by the first record that is put into it. ${key() ? "This key reaches none so far." : ""}` });
    empty.append(el("pre", { tabindex: "0", "aria-label": "Example" }, lines.join(" \\\n  ")), el("p", { class: "muted" }, "or on the command line: ", el("code", {}, "banyan ingest chat.jsonl --tree user-42")));
    return empty;
  }

  async tick() {
    await Promise.all([...this.seen].slice(0, 40).map((name) => this.measure(name)));
    if (this.rows.size === 0) this.load("");
    else await this.look();
  }

  /** Trees that were made since, among the first ones; others come with their page. */
  async look() {
    try {
      const page = await get("trees", { limit: PAGE }, { signal: this.stop.signal });
      const fresh = page.trees.filter((tree) => !this.rows.has(tree.tree));
      for (const tree of fresh) this.add(tree);
      if (fresh.length) this.narrow();
    } catch {
      // The banner says that the service is away; the next look may find it.
    }
  }

  async measure(name) {
    const row = this.rows.get(name);
    if (!row || row.busy) return;
    row.busy = true;
    try {
      const at = performance.now();
      const stats = await get(`trees/${part(name)}`, {}, { signal: this.stop.signal });
      if (row.stats) row.rate = ((stats.leaves - row.stats.leaves) * 1000) / (at - row.at);
      [row.stats, row.at] = [stats, at];
      this.show(row);
    } catch (error) {
      if (error.name !== "AbortError") row.cells.pending.textContent = "not known";
    } finally {
      row.busy = false;
    }
  }

  show({ cells, about, stats, rate: perSecond }) {
    about.textContent = described(stats);
    for (const cell of Object.values(cells)) cell.classList.remove("bone-text");
    cells.leaves.textContent = compact(stats.leaves);
    cells.topics.textContent = compact(stats.summaries);
    cells.bytes.textContent = bytes(stats.bytes);
    cells.rate.textContent = perSecond ? rate(perSecond) : "idle";
    cells.rate.classList.toggle("live", Boolean(perSecond));
    cells.pending.replaceChildren(
      stats.pending ? el("span", { class: "badge warn", title: `${counted(stats.contributions, "item")} not in a summary yet` }, `${compact(stats.pending)} pending`) : el("span", { class: "badge good" }, "fresh"),
    );
  }
}

const described = (tree) => `${tree.structure} · ${tree.embedder} · commit ${number(tree.seq)}`;

// What is happening to the tree: its commits, as they come.

import { follow, get, part } from "./api.js";
import { blank, button, counted, el, number, rate, shorten, svg, when } from "./dom.js";

const KEPT = 60;
const SECONDS = 60;
const BACK = 100;
const HIDDEN_MS = 10_000; // a tab that nobody sees gives its connection back: browsers have six for one host

export class Activity {
  /** `on.commits(list)` is told of new ones, `on.record(event id)` shows one, `on.state(live | connecting | off)`. */
  constructor(host, meter, tree, on, signal) {
    Object.assign(this, { host, tree, on, signal, list: el("ol", { class: "commits" }), arrived: [] });
    this.line = svg("path", { class: "spark-line", fill: "none" });
    this.area = svg("path", { class: "spark-area" });
    this.figure = el("b", {}, "0/s");
    meter.append(el("span", { class: "meter-figure" }, this.figure, " items"), svg("svg", { viewBox: "0 0 120 28", class: "spark", role: "img", "aria-label": "Items a second, the last minute", preserveAspectRatio: "none" }, this.area, this.line));
    this.timer = setInterval(() => this.beat(), 1_000);
    signal.addEventListener("abort", () => (clearInterval(this.timer), clearTimeout(this.leaving)));
    document.addEventListener("visibilitychange", () => this.turned(), { signal });
    this.beat();
  }

  /** Begin at a commit, with some of those before it. */
  async start(seq) {
    this.on.state("connecting");
    this.kept = [];
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const before = await get(`trees/${part(this.tree)}/commits`, { after: Math.max(0, seq - BACK), limit: BACK }, { signal: this.signal });
      if (turn !== this.turn) return; // the tab was left and seen again meanwhile, and has begun anew
      this.add(before.commits);
      this.last = Math.max(seq, before.commits.at(-1)?.seq ?? 0);
    } catch (error) {
      if (error.name === "AbortError" || turn !== this.turn) return;
      this.last = seq;
    }
    this.render();
    // Nobody sees a tab that was opened in the background, or left meanwhile: it begins anew once somebody does.
    if (document.hidden) this.left = true;
    else this.connect();
  }

  connect() {
    this.open?.abort();
    this.open = new AbortController();
    const signal = AbortSignal.any([this.signal, this.open.signal]);
    follow(`trees/${part(this.tree)}/commits/stream`, {
      after: this.last,
      signal,
      on: {
        open: () => this.on.state("live"),
        event: (name, commit) => name === "commit" && this.came(commit),
        lost: (error) => signal.aborted || this.on.state(error?.status && error.status < 500 ? "off" : "connecting"),
      },
    });
  }

  /** The tab was hidden, or is seen again. */
  turned() {
    clearTimeout(this.leaving);
    if (document.hidden) {
      this.leaving = setTimeout(() => {
        this.open?.abort();
        this.left = true;
      }, HIDDEN_MS);
    } else if (this.left) {
      this.left = false;
      this.on.back();
    }
  }

  came(commit) {
    if (commit.seq <= this.last) return;
    this.last = commit.seq;
    const leaves = commit.created.filter((each) => each.kind === "leaf").length;
    if (leaves) this.arrived.push([performance.now(), leaves]);
    this.add([commit]);
    this.due ??= setTimeout(() => {
      this.due = null;
      this.render();
    }, 250);
    this.on.commits(commit, leaves);
  }

  /** Summaries are written one by one: those that follow one another stand in one row. */
  add(commits) {
    this.kept ??= [];
    for (const commit of commits) {
      const leaves = commit.created.filter((each) => each.kind === "leaf").length;
      const topics = commit.created.filter((each) => each.kind === "summary").length;
      const forgotten = commit.forgotten.length;
      const quiet = !commit.created.length && !commit.moved.length && !commit.events.length && !forgotten;
      const newest = this.kept[0];
      if (quiet && newest?.quiet) {
        commit.rewritten.forEach((id) => newest.rewritten.add(id));
        Object.assign(newest, { last: commit.seq, at: commit.at });
      } else this.kept.unshift({ first: commit.seq, last: commit.seq, at: commit.at, events: commit.events, rewritten: new Set(commit.rewritten), leaves, topics, forgotten, quiet });
    }
    this.kept.splice(KEPT);
  }

  render() {
    if (!this.kept?.length) {
      this.host.replaceChildren(blank({ heading: "Nothing has happened yet", text: "Commits stand here as they come." }));
      return;
    }
    const have = new Map([...this.list.children].map((row) => [row.dataset.state, row]));
    const state = (group) => `${group.first}-${group.last}`;
    const known = new Set([...this.list.children].map((row) => row.dataset.first));
    this.list.replaceChildren(...this.kept.map((group) => have.get(state(group)) ?? this.row(group, state(group), known.size > 0 && !known.has(String(group.first)))));
    if (!this.list.isConnected) this.host.replaceChildren(this.list);
  }

  row(group, state, fresh) {
    const { events, leaves, topics, forgotten, rewritten } = group;
    const what = [leaves ? `${counted(leaves, "item")} placed` : null, topics ? `${counted(topics, "topic")} made` : null, forgotten ? `${counted(forgotten, "record")} forgotten` : null, rewritten.size ? `${counted(rewritten.size, "summary", "summaries")} written` : null];
    return el(
      "li",
      { class: `commit ${leaves ? "grew" : ""} ${fresh ? "new" : ""}`, "data-state": state, "data-first": group.first },
      el("div", { class: "commit-head" }, el("b", {}, group.first === group.last ? `#${number(group.last)}` : `#${number(group.first)} – ${number(group.last)}`), when(group.at)),
      el("p", {}, what.filter(Boolean).join(", ") || "Noted"),
      events.length ? el("ul", { class: "chips" }, events.slice(0, 4).map((id) => el("li", {}, button(shorten(id, 40), (event) => this.on.record(id, event.currentTarget), { kind: "chip" }))), events.length > 4 ? el("li", { class: "muted" }, `and ${number(events.length - 4)} more`) : null) : null,
    );
  }

  /** Once a second: how many came in each of the last sixty. */
  beat() {
    const now = performance.now();
    this.arrived = this.arrived.filter(([at]) => now - at < SECONDS * 1_000);
    const counts = new Array(SECONDS).fill(0);
    for (const [at, leaves] of this.arrived) counts[SECONDS - 1 - Math.floor((now - at) / 1_000)] += leaves;
    const top = Math.max(1, ...counts);
    const points = counts.map((count, at) => `${((at / (SECONDS - 1)) * 120).toFixed(1)} ${(26 - (count / top) * 23).toFixed(1)}`);
    this.line.setAttribute("d", `M ${points.join(" L ")}`);
    this.area.setAttribute("d", `M 0 28 L ${points.join(" L ")} L 120 28 Z`);
    const lately = counts.slice(-6, -1).reduce((sum, count) => sum + count, 0) / 5;
    this.figure.textContent = rate(lately);
  }
}

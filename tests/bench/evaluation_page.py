"""
The figures of docs/evaluation.md, from what `banyan eval … --structure all --results FILE` kept.

`python -m tests.bench.evaluation_page FILE…` puts what the files hold in the place of the same rows of docs/evaluation.json (a row
is one strategy on one structure and set), with the commit and the machine of the measurement, and writes the drawings
docs/images/evaluation-*.svg and the part of the page between its two markers from all of it. `--commit C` says of which commit the
files are, where that is not the one that is checked out. Without a file it writes the page again from what is kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from memory.structures import registry
from streams.evaluation.choices import STRATEGIES
from tests.bench.__main__ import commit, machine

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "evaluation.md"
KEPT = DOCS / "evaluation.json"
BEGIN, END = "<!-- figures: written by tests.bench.evaluation_page -->\n", "<!-- end of figures -->\n"
NAMES: Final = {
    "locomo": ("LoCoMo", "turns", "sessions"),
    "multihoprag": ("MultiHop-RAG facts", "facts", "articles"),
    "hotpotqa": ("HotpotQA", "passages", ""),
    "musique": ("MuSiQue", "passages", ""),
    "twowiki": ("2Wiki", "passages", ""),
    "quality": ("QuALITY", "passages", "articles"),
    "nq_long": ("Natural Questions, whole pages", "passages", "pages"),
}
"""Sets in the order of the page: their names, and what the two levels are called; sets without documents of their own have one."""
NOTES: Final = {
    "quality": "QuALITY marks no evidence: the passage that shares most with the right option stands in, which favours words.",
    "nq_long": "Any one passage with the answer is all that is asked for; there are 21 pages, so that sessions are easily found.",
}
METRICS: Final = ("recall@3", "recall@5", "recall@10", "ndcg@10")
SHORT: Final = {"recall@3": "R@3", "recall@5": "R@5", "recall@10": "R@10", "ndcg@10": "NDCG@10"}
BASELINES: Final = ("dense", "bm25", "dense+bm25")
PUBLISHED: Final = {
    "MemGAS, Contriever, LLM summaries and keywords (its table 2)": ("57.30", "67.32", "81.82", "68.42"),
    "MemGAS, MiniLM (its appendix)": ("", "", "71.3", ""),
}
"""Of the whole of LoCoMo, sessions: R@3, R@5, R@10, NDCG@10."""

_ROW, _LEFT, _WIDTH, _BAR = 18, 190, 760, 430
_SHADES: Final = {"turn": "#7aa6c2", "session": "#1f5f8b"}

Result = Mapping[str, Any]
Structures = Mapping[str, Result]


def main() -> None:
    """Write page, drawings and figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.evaluation_page")
    parser.add_argument("files", nargs="*", type=Path, metavar="RESULTS.json")
    parser.add_argument("--commit", default=commit(), help="what was measured; without it, what is checked out")
    given = parser.parse_args()
    stamp = {"commit": given.commit, "machine": machine(), "on": f"{datetime.now(UTC):%Y-%m-%d}"}
    sets: dict[str, dict[str, dict[str, Any]]] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    for file in given.files:
        merge(sets, json.loads(file.read_text("utf-8"))["sets"], stamp)
    KEPT.write_text(json.dumps(sets, indent=1, sort_keys=True) + "\n", "utf-8")
    images = DOCS / "images"
    images.mkdir(exist_ok=True)
    for name in NAMES:
        if name in sets:
            (images / f"evaluation-{name}.svg").write_text(drawing(name, sets[name]), "utf-8")
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(page(sets)) + "\n" + END + after, "utf-8")


def merge(sets: dict[str, dict[str, dict[str, Any]]], fresh: Mapping[str, Structures], stamp: Mapping[str, str]) -> None:
    """
    Put what was measured in the place of the same rows.

    What a tree looks like, and what it cost to grow, is of the latest measurement of the whole structure on that set.

    Args:
        sets: what is kept, changed in place.
        fresh: what was measured.
        stamp: when, where and of which commit.
    """
    for name, structures in fresh.items():
        kept = sets.setdefault(name, {})
        for structure, measured in structures.items():
            result = {key: value for key, value in measured.items() if key != "conditions"}
            before = kept.get(structure, {})
            if "strategies" not in result:
                kept[structure] = {**result, "measured": dict(stamp)}
                continue
            whole = before.get("strategies", {}).keys() <= result["strategies"].keys()
            grown = whole and (result["ingestion"]["items_per_s_committed"] or not before)
            times = {**before.get("latency_ms", {}).get("strategies", {}), **result["latency_ms"]["strategies"]}
            kept[structure] = {
                **(result if grown else {**result, **{key: before[key] for key in ("ingestion", "tree", "size") if key in before}}),
                "strategies": {**before.get("strategies", {}), **result["strategies"]},
                "latency_ms": {**result["latency_ms"], "strategies": times},
                "measured": {**before.get("measured", {}), **{each: dict(stamp) for each in result["strategies"]}},
            }


def measured_lines(sets: Mapping[str, Structures]) -> Iterator[str]:
    """Which rows are of which commit, machine and day."""
    rows: dict[tuple[str, str, str], dict[str, dict[str, list[str]]]] = {}
    for name in (*NAMES, "msc"):
        for structure, result in sets.get(name, {}).items():
            stamps = result.get("measured", {})
            each = {strategy: stamps.get(strategy) for strategy in result["strategies"]} if "strategies" in result else {"": stamps}
            for strategy, stamp in each.items():
                key = (stamp["commit"], stamp["machine"], stamp["on"]) if stamp else ("", "", "")
                rows.setdefault(key, {}).setdefault(name, {}).setdefault(structure, []).append(strategy)
    for (of, where, on), found in sorted(rows.items(), key=lambda row: row[0][2], reverse=True):
        said = []
        for name, structures in found.items():
            whole = structures.keys() == sets[name].keys() and all(
                len(each) == len(sets[name][structure].get("strategies", each)) for structure, each in structures.items()
            )
            some = (_rows(structure, each, sets[name][structure]) for structure, each in structures.items())
            title = NAMES[name][0] if name in NAMES else "summaries"
            said.append(title if whole else f"{title}: {'; '.join(some)}")
        head = f"Commit {of}, {on}, {where}" if of else "Commits 45c8dc2 to 2d5fadd, before rows were stamped"
        yield f"- {head}: {'. '.join(said)}."
    yield ""


def _rows(structure: str, strategies: list[str], result: Result) -> str:
    """Some rows of a structure, in as few words as there can be."""
    others = [each for each in result.get("strategies", {}) if each not in strategies]
    if not others:
        return structure
    if len(strategies) <= len(others):
        return f"{structure} ({', '.join(strategies)})"
    return f"{structure} without {', '.join(others)}"


def page(sets: Mapping[str, Structures]) -> Iterator[str]:
    """Lines of the page."""
    yield from measured_lines(sets)
    for name, (title, turn, session) in NAMES.items():
        if name not in sets:
            continue
        structures = sets[name]
        first = by_structure(structures)[0][1]
        yield f"### {title}: {first['questions']:,} questions, {first['tree']['items']:,} items\n"
        yield f"![recall at ten of every structure and strategy on {title}](images/evaluation-{name}.svg)\n"
        if name in NOTES:
            yield f"{NOTES[name]}\n"
        yield from _recalls(structures, turn, session)
        if name == "locomo":
            yield from _published()
        yield ""
        yield from _categories(structures, turn)
    yield "### What it costs\n"
    yield from _costs(sets)
    if "msc" in sets:
        yield "### Summaries of conversations\n"
        yield from _summaries(sets["msc"])


def by_structure(structures: Structures) -> list[tuple[str, Result]]:
    """In the order of `banyan eval --structure all`, whatever order they are kept in."""
    return [(each, structures[each]) for each in registry.NAMES if each in structures]


def ordered(result: Result) -> list[tuple[str, Result]]:
    """Its strategies in the order of `banyan eval --strategy all`."""
    return [(each, result["strategies"][each]) for each in STRATEGIES if each in result["strategies"]]


def _recalls(structures: Structures, turn: str, session: str) -> Iterator[str]:
    levels = [("turn", turn), *([("session", session)] if session else [])]
    columns = [f"{label} {SHORT[metric]}" for _, label in levels for metric in METRICS]
    units = ["by unit R@10"] if session else []
    yield _line("structure", "strategy", *columns, *units, "p50, ms", "p99, ms", "p50 without embedding")
    yield _rule(2 + len(columns) + len(units) + 3)
    for structure, result in by_structure(structures):
        times = result["latency_ms"]["strategies"]
        for strategy, found in ordered(result):
            cells = [_percent(_at(found, level, session).get(metric)) for level, _ in levels for metric in METRICS]
            if session:
                cells.append(_percent(found["unit"].get("recall@10")))
            took = times.get(strategy, {})
            cells += [_number(took.get(each), 1) for each in ("p50", "p99", "p50_without_embedding")]
            yield _line(structure, f"**{strategy}**" if strategy == "hybrid" else strategy, *cells)


def _at(found: Result, level: str, session: str) -> Result:
    """What a strategy found at a level. Where passages are their own documents, units of these are passages."""
    at: Result = found[level] or (found["session"] if not session else found[level])
    return at


def _published() -> Iterator[str]:
    yield "\nPublished, of **all ten conversations** (ours: four), with another embedding model or summaries by a large one:\n"
    yield _line("", *(f"sessions {SHORT[metric]}" for metric in METRICS))
    yield _rule(5)
    for name, figures in PUBLISHED.items():
        yield _line(name, *figures)


def _categories(structures: Structures, turn: str) -> Iterator[str]:
    first = by_structure(structures)[0][1]
    some = next(iter(first["strategies"].values()))["by_category"]
    if len(some) < 2:
        return
    columns = [("memtree", "hybrid"), ("hat", "agent"), ("hmem", "descent"), ("memgas", "router")]
    columns += [("memtree", each) for each in BASELINES]
    there = [(structure, each) for structure, each in columns if each in structures.get(structure, {}).get("strategies", {})]
    yield _line(f"R@10 of {turn} by category", "questions", *(each for _, each in there))
    yield _rule(2 + len(there))
    for category, row in some.items():
        found = (structures[one]["strategies"][each]["by_category"][category]["turn"].get("recall@10") for one, each in there)
        yield _line(category, f"{row['questions']:,}", *map(_percent, found))
    yield ""


def _costs(sets: Mapping[str, Structures]) -> Iterator[str]:
    yield _line(
        "set", "structure", "nodes", "depth", "committed, items/s", "fresh, items/s", "CPU ms an item", "summaries asked an item",
        "tokens in / out an item", "store, KB an item", "index, KB an item",
    )  # fmt: skip
    yield _rule(11)
    for name, (title, _, _) in NAMES.items():
        for structure, result in by_structure(sets.get(name, {})):
            taken, tree, size = result["ingestion"], result["tree"], result.get("size", {})
            tokens = [_number(taken.get(f"summary_tokens_{each}_per_item"), 0) for each in ("in", "out")]
            per_item = size.get("index_bytes", 0) / max(1, tree["leaves"]) / 1024
            yield _line(
                title,
                structure,
                f"{tree['nodes']:,}",
                str(tree["depth_max"]),
                _number(taken["items_per_s_committed"], 0),
                _number(taken["items_per_s_fresh"], 0),
                _number(taken.get("cpu_ms_per_item"), 1),
                _number(taken.get("summaries_asked_per_item"), 2),
                " / ".join(tokens) if all(tokens) else "",
                _number(size["store_bytes_per_item"] / 1024 if size else None, 1),
                _number(per_item if size else None, 1),
            )
    yield ""


def _summaries(structures: Structures) -> Iterator[str]:
    yield _line("", "F1", "BLEU-1/2", "DISTINCT-1/2", "words")
    yield _rule(5)
    for structure, row in by_structure(structures):
        pairs = f"{row['bleu_1']:.2f} / {row['bleu_2']:.2f}", f"{row['distinct_1']:.2f} / {row['distinct_2']:.2f}"
        yield _line(f"{structure}, {row['summarizer']}", f"{row['f1']:.2f}", *pairs, f"{row['words']:.0f}")
    stated = next((row["profiles"] for _, row in by_structure(structures) if "profiles" in row), None)
    if stated is not None:
        pairs = f"{stated['bleu_1']:.2f} / {stated['bleu_2']:.2f}", f"{stated['distinct_1']:.2f} / {stated['distinct_2']:.2f}"
        name = "what both speakers say of themselves (`banyan profile`), on any structure"
        yield _line(name, f"{stated['f1']:.2f}", *pairs, f"{stated['words']:.0f}")
    gold = next(iter(structures.values()))["gold_words"]
    yield _line("HAT with a GPT (its slides; whole test set)", "38.88", "37.98 / 16.18", "0.76 / 0.88", "")
    yield _line("recursive summaries with a GPT (as the slides have it)", "25.35", "28.52 / 11.63", "", "")
    yield _line("gold", "", "", "", f"{gold:.0f}")
    yield ""


def drawing(name: str, structures: Structures) -> str:
    """Bars of R@10, one strategy a row, as SVG."""
    title, turn, session = NAMES[name]
    levels = ["turn", *(["session"] if session else [])]
    lines: list[str] = []
    top = 44
    for structure, result in by_structure(structures):
        lines.append(f'<text x="8" y="{top + 12}" class="head">{escape(structure)}</text>')
        for strategy, found in ordered(result):
            lines.append(f'<text x="{_LEFT - 8}" y="{top + 12}" text-anchor="end">{escape(strategy)}</text>')
            height = (_ROW - 4) / len(levels)
            for number, level in enumerate(levels):
                value = _at(found, level, session).get("recall@10")
                if value is not None:
                    box = f'x="{_LEFT}" y="{top + number * height:.1f}" width="{_BAR * value:.1f}" height="{height:.1f}"'
                    lines.append(f'<rect {box} fill="{_SHADES[level]}"/>')
            shown = " · ".join(_percent(_at(found, level, session).get("recall@10")) or "–" for level in levels)
            lines.append(f'<text x="{_LEFT + _BAR + 8}" y="{top + 12}" class="value">{shown}</text>')
            top += _ROW
        top += 8
    legend = " · ".join(label for label in (turn, session) if label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" role="img" '
        'font-family="sans-serif" font-size="12">\n'
        f"<title>R@10 on {escape(title)}: {escape(legend)}</title>\n"
        "<style>.head{font-weight:bold}.value{font-size:11px}text{fill:#222}</style>\n"
        f'<rect width="{_WIDTH}" height="{top}" fill="#fff"/>\n'
        f'<text x="8" y="20" class="head">R@10 on {escape(title)}, in percent: {escape(legend)}</text>\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|" + "---|" * columns


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"


if __name__ == "__main__":
    main()

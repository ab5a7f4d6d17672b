"""The part of docs/evaluation.md that tells what MemGAS' router finds beside cosine, from the measured results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

BEGIN = "<!-- tests.bench router: written by `python -m tests.bench router`, do not edit -->"
END = "<!-- end of tests.bench router -->"
NAMES = {"locomo": "LoCoMo", "multihoprag": "MultiHop-RAG facts", "hotpotqa": "HotpotQA", "musique": "MuSiQue"}
LEVELS = {"turn": "turns, facts, passages", "session": "sessions, articles", "unit": "by unit"}
_HELD = ("set", "parted by", "level", "router", "dense", "lead", "least, most", "ahead in", "recipe chosen most often")
_OTHERS = ("set", "level", "router", "dense", "questions with more, with less", "recipe")
_FORCE = ("set", "questions", "level", "router", "dense", "questions with more, with less", "best recipe for all")


def render(result: Mapping[str, Any]) -> str:
    """The block, with its marks."""
    force = "".join(_force(result))
    held = "".join(_held(result))
    others = "".join(_others(result))
    parts = (
        f"{BEGIN}\n\nR@10 in percent, the recipe in force and cosine alone, on all questions:\n\n{_head(_FORCE)}{force}",
        f"Of {result['recipes']} recipes the one that finds most on one half, judged by the other; means over all partings:\n\n"
        f"{_head(_HELD)}{held}",
        f"The recipe that leads cosine by most on the three other sets:\n\n{_head(_OTHERS)}{others}",
        f"Commit {result['commit']}, {result['on']}, {result['machine']}.\n\n{END}",
    )
    return "\n".join(parts)


def written(page: str, result: Mapping[str, Any]) -> str:
    """The page with the block in its place."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"docs/evaluation.md has no place for it: {BEGIN} … {END}")
    return f"{before}{render(result)}{after}"


def _head(columns: tuple[str, ...]) -> str:
    return f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"


def _levels(levels: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Those that say something of their own: passages are their own documents."""
    alike = levels["turn"] == levels["session"]
    for level, row in levels.items():
        if not alike or level == "turn":
            yield LEVELS[level], row


def _force(result: Mapping[str, Any]) -> Iterator[str]:
    for name, title in NAMES.items():
        of = result[name]
        found = of["best"]["levels"]
        best = f"{_recipe(of['best'])}: {', '.join(f'{found[level]}' for level in LEVELS)}"
        for number, (level, row) in enumerate(_levels(of["in_force"])):
            lead = f"{row['more']}, {row['less']}"
            cells = (title, of["questions"], level, row["router"], row["dense"], lead, "" if number else best)
            yield f"| {' | '.join(map(str, cells))} |\n"


def _held(result: Mapping[str, Any]) -> Iterator[str]:
    for name, title in NAMES.items():
        for kind, held in result[name]["held_out"].items():
            for number, (level, row) in enumerate(_levels(held["levels"])):
                ahead = f"{row['ahead']} of {held['splits']}"
                often = "" if number else f"{_recipe(held['most_often'])} ({held['chosen_so_often']} times)"
                spread = f"{row['lead_least']:+}, {row['lead_most']:+}"
                cells = (title, kind, level, row["router"], row["dense"], f"{row['lead']:+}", spread, ahead, often)
                yield f"| {' | '.join(map(str, cells))} |\n"


def _others(result: Mapping[str, Any]) -> Iterator[str]:
    for name, title in NAMES.items():
        of = result["by_other_sets"][name]
        for number, (level, row) in enumerate(_levels(of["levels"])):
            lead = f"{row['more']}, {row['less']}"
            yield f"| {title} | {level} | {row['router']} | {row['dense']} | {lead} | {'' if number else _recipe(of)} |\n"


def _recipe(of: Mapping[str, Any]) -> str:
    return f"sharpness {of['sharpness']}, {of['seeds']} seeds, damping {of['damping']}, power {of['session_power']}"

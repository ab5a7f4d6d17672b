"""The part of docs/evaluation.md that tells what H-MEM's descent compares, from the measured results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BEGIN = "<!-- tests.bench hmem: written by `python -m tests.bench hmem`, do not edit -->"
END = "<!-- end of tests.bench hmem -->"
_COLUMNS = (
    "episodes, dimensions",
    "domains, categories, traces",
    "similarities computed, mean (most)",
    "of a flat search's",
    "of its first ten",
    "flat, ms",
    "descent, ms",
)
_HEAD = f"\n| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|\n"


def render(result: Mapping[str, Any]) -> str:
    """The block, with its marks."""
    rows = [_row(each, "made up") for each in result["made_up"]]
    real = result.get("real")
    evidence = ""
    if real is not None:
        rows.append(_row(real, "passages and sentences of HotpotQA, MuSiQue, 2Wiki"))
        evidence = (
            f"\nOf the evidence of these sets' questions the flat search has {real['evidence_flat']:.1%} among its first ten, "
            f"the descent {real['evidence_descent']:.1%}: {real['evidence_ratio']:.1%} of it.\n"
        )
    return f"{BEGIN}\n{_HEAD}{''.join(rows)}{evidence}\nCommit {result['commit']}, {result['on']}.\n\n{END}"


def written(page: str, result: Mapping[str, Any]) -> str:
    """The page with the block in its place."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"docs/evaluation.md has no place for it: {BEGIN} … {END}")
    return f"{before}{render(result)}{after}"


def _row(size: Mapping[str, Any], what: str) -> str:
    nodes = ", ".join(f"{size[layer]:,}" for layer in ("domains", "categories", "traces"))
    return (
        f"| {size['episodes']:,}, {size['dimensions']} ({what}) | {nodes} | {size['compared']:,} ({size['compared_max']:,}) "
        f"| {size['share']:.2%} | {size['recall']:.1%} | {size['flat_ms']} | {size['descent_ms']} |\n"
    )

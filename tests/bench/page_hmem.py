"""The part of docs/evaluation.md that tells what H-MEM's descent compares, from the measured results."""

from __future__ import annotations

import re
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
    "commit",
)
REAL = "passages and sentences of HotpotQA, MuSiQue, 2Wiki"
_HEAD = f"\n| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|\n"


def render(result: Mapping[str, Any], kept: Mapping[str, str] | None = None, evidence: str = "") -> str:
    """
    The block, with its marks.

    Args:
        result: what was measured.
        kept: rows of an earlier measurement by their first cell, which stay where they were not measured again.
        evidence: what it said of the real texts' questions, which stays likewise.
    """
    stamp = f"{result['commit']}, {result['on']}"
    measured = [(each, "made up") for each in result["made_up"]]
    real = result.get("real")
    if real is not None:
        measured.append((real, REAL))
        evidence = (
            f"\nOf the evidence of these sets' questions the flat search has {real['evidence_flat']:.1%} among its first ten, "
            f"the descent {real['evidence_descent']:.1%}: {real['evidence_ratio']:.1%} of it.\n"
        )
    rows = {**(kept or {}), **{_key(each, what): _row(each, what, stamp) for each, what in measured}}
    ordered = sorted(rows, key=lambda key: (REAL in key, int(key.partition(", ")[0].replace(",", ""))))
    return f"{BEGIN}\n{_HEAD}{''.join(rows[key] for key in ordered)}{evidence}\n{END}"


def written(page: str, result: Mapping[str, Any]) -> str:
    """The page with the block in its place."""
    before, found, rest = page.partition(BEGIN)
    block, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"docs/evaluation.md has no place for it: {BEGIN} … {END}")
    said = re.search(r"\n(Of the evidence .*\n)", block)
    return f"{before}{render(result, _kept(block), said[0] if said else '')}{after}"


def _kept(block: str) -> dict[str, str]:
    """The rows of a block by their first cell."""
    lines = [line for line in block.splitlines() if re.match(r"\| \d", line)]
    return {line.split("|")[1].strip(): f"{line}\n" for line in lines}


def _key(size: Mapping[str, Any], what: str) -> str:
    return f"{size['episodes']:,}, {size['dimensions']} ({what})"


def _row(size: Mapping[str, Any], what: str, stamp: str) -> str:
    nodes = ", ".join(f"{size[layer]:,}" for layer in ("domains", "categories", "traces"))
    return (
        f"| {_key(size, what)} | {nodes} | {size['compared']:,} ({size['compared_max']:,}) "
        f"| {size['share']:.2%} | {size['recall']:.1%} | {size['flat_ms']} | {size['descent_ms']} | {stamp} |\n"
    )

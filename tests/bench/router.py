"""
Whether MemGAS' router finds more than cosine alone, with its parameters chosen on other questions than it is judged by.

Data sets in the folder that BANYAN_BENCH_DATA names, offline, by the settings in force. Of each question every recipe of the grid
ranks all units once; then the questions, and apart from that the conversations, are parted in two halves many times: the recipe
that finds most on one half is judged by the other. At last the recipe that leads cosine most on all other sets is judged by each.
What `dense` finds there is by the same vectors. A damping of 0 is no walk at all.

`python -m tests.bench.router [DIR]` keeps the memories in DIR, to be used again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.local import LocalMemory
from memory.model import EventId, NodeId, TreeId
from memory.retrieval.router import GranularityRouter, RouterRecipe, foremost, walked
from memory.retrieval.units import LEVELS, TURN, Units
from memory.service.chunking import items
from memory.service.query import GROUP_WIDTH
from memory.settings import IngestSettings
from memory.tree.planning import leaf_id
from streams.evaluation import metrics
from streams.evaluation.dataset import Case, Dataset
from streams.evaluation.formats import load
from streams.evaluation.run import ARTICLES_K, UNITS_K, conditions, fill, open_memory
from streams.setting_tables import TreeSettings
from streams.settings import Settings
from tests.bench.example import data_folder

GRID: Mapping[str, Sequence[float]] = {
    "sharpness": (0.05, 0.1, 0.2),
    "seeds": (30, 100),
    "damping": (0.0, 0.1, 0.3),
    "session_power": (0.0, 0.5, 0.75, 1.0),
}
SETS: Mapping[str, str] = {"locomo": "locomo", "multihoprag": "multihoprag", "hotpotqa": "passages", "musique": "passages"}
"""Those that are measured, and their formats: conversations, facts of news, passages of an encyclopaedia."""
COUNTED = ("turn", "session", "unit")
"""Levels of `banyan eval`; a recipe is chosen by the mean of their R@10."""
SPLITS = 50
SEED = 0

Found = NDArray[np.float64]
"""(recipes + 1, questions, levels) R@10; the last row is cosine alone."""


def recipes() -> list[RouterRecipe]:
    """All of the grid, those in force first."""
    chosen = [RouterRecipe(**dict(zip(GRID, each, strict=True))) for each in itertools.product(*GRID.values())]  # type: ignore[arg-type]
    return sorted((replace(each, seeds=int(each.seeds)) for each in chosen), key=lambda each: each != RouterRecipe())


class Judge:
    """
    What rankings of one tree's units find.

    Args:
        units: of the tree.
        leaves: event and session of each leaf.
        documents: leaves are documents' chunks, of which the best counts.
    """

    def __init__(self, units: Units, leaves: Mapping[NodeId, tuple[str, str]], *, documents: bool) -> None:
        self._turn_leaves = GROUP_WIDTH * metrics.DEPTH if documents else metrics.DEPTH
        self._session_leaves = GROUP_WIDTH * (ARTICLES_K if documents else metrics.DEPTH)
        self._levels = units.levels
        session_of = {int(units.sessions[place]): leaves[node][1] for place, node in enumerate(units.ids) if node in leaves}
        self._sessions = [session_of[int(place)] for place in units.sessions]
        self._turns = [leaves[node][0] if node in leaves else "" for node in units.ids]

    def found(self, ranks: NDArray[np.floating], case: Case) -> list[float]:
        """R@10 at the levels of `COUNTED`, as `banyan eval` has them."""
        leaves = np.where(self._levels == LEVELS.index(TURN), ranks, -np.inf)
        best = foremost(leaves, self._session_leaves).tolist()
        turns = metrics.score([self._turns[place] for place in best[: self._turn_leaves]], case.turns)
        sessions = metrics.score([self._sessions[place] for place in best], case.sessions)
        units = metrics.score([self._sessions[place] for place in foremost(ranks, UNITS_K).tolist()], case.sessions)
        return [each["recall@10"] for each in (turns, sessions, units)]


async def measure(memory: LocalMemory, dataset: Dataset, grid: Sequence[RouterRecipe]) -> tuple[Found, list[str]]:
    """What each recipe finds of each question, and whose conversation each question is about."""
    router = memory.parts.query.strategies["router"]
    assert isinstance(router, GranularityRouter)
    cut = IngestSettings().chunk_tokens
    leaves: dict[str, dict[NodeId, tuple[str, str]]] = {}
    for record in dataset.records:
        place = dataset.places[record.tree, record.id]
        for item in items(record, chunk_tokens=cut):
            leaves.setdefault(record.tree, {})[leaf_id(EventId(record.id), item.chunk)] = (place.turn, place.session)
    cases = [case for case in dataset.cases if case.tree]
    found = np.zeros((len(grid) + 1, len(cases), len(COUNTED)))
    for tree in dataset.trees:
        units = await router.units(TreeId(tree))
        judge = Judge(units, leaves[tree], documents=dataset.group == "document")
        for number, case in enumerate(cases):
            if case.tree != tree:
                continue
            cosines = units.vectors @ await memory.parts.query.embed(case.text)
            found[-1, number] = judge.found(cosines, case)
            for row, recipe in enumerate(grid):
                found[row, number] = judge.found(walked(units, cosines, recipe).ranks, case)
    return found, [case.tree for case in cases]


def halves(owners: Sequence[str]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Ways of parting the questions: the kind, and (n,) which are those to choose by."""
    random = np.random.default_rng(SEED)
    trees = sorted(set(owners))
    for _ in range(SPLITS):
        chosen = np.zeros(len(owners), bool)
        chosen[random.permutation(len(owners))[: len(owners) // 2]] = True
        yield "questions", chosen
    for some in itertools.combinations(trees, len(trees) // 2) if len(trees) > 1 else ():
        yield "conversations", np.isin(owners, some)


def judged(found: Found, grid: Sequence[RouterRecipe], owners: Sequence[str]) -> dict[str, Any]:
    """Of each way of parting: what the chosen recipe and cosine find on the other half."""
    result: dict[str, Any] = {}
    for kind, chosen in halves(owners):
        best = int(np.argmax(found[:-1, chosen].mean(axis=(1, 2))))
        own, dense = (100 * found[row, ~chosen].mean(axis=0) for row in (best, -1))
        result.setdefault(kind, []).append((best, own, dense))
    return {kind: _summed(kind_rows, grid) for kind, kind_rows in result.items()}


def _summed(rows: list[tuple[int, NDArray[np.float64], NDArray[np.float64]]], grid: Sequence[RouterRecipe]) -> dict[str, Any]:
    own, dense = (np.array([row[place] for row in rows]) for place in (1, 2))
    counts = {best: sum(row[0] == best for row in rows) for best in {row[0] for row in rows}}
    often = max(counts, key=lambda best: counts[best])
    return {
        "splits": len(rows),
        "most_often": {name: asdict(grid[often])[name] for name in GRID},
        "chosen_so_often": counts[often],
        "levels": {
            level: {
                "router": round(float(own[:, place].mean()), 1),
                "dense": round(float(dense[:, place].mean()), 1),
                "lead": round(float((own - dense)[:, place].mean()), 1),
                "lead_least": round(float((own - dense)[:, place].min()), 1),
                "lead_most": round(float((own - dense)[:, place].max()), 1),
                "ahead": int(((own - dense)[:, place] > 0).sum()),
            }
            for place, level in enumerate(COUNTED)
        },
    }


def in_force(found: Found) -> dict[str, Any]:
    """The recipe in force on all questions: its R@10, that of cosine, and on how many questions either finds more."""
    own, dense = found[0], found[-1]
    return {
        level: {
            "router": round(100 * float(own[:, place].mean()), 1),
            "dense": round(100 * float(dense[:, place].mean()), 1),
            "more": int((own > dense)[:, place].sum()),
            "less": int((own < dense)[:, place].sum()),
        }
        for place, level in enumerate(COUNTED)
    }


def best_of(found: Found, grid: Sequence[RouterRecipe]) -> dict[str, Any]:
    """The recipe that finds most of all questions, chosen by the same ones, and its R@10: more than can be had."""
    best = int(np.argmax(found[:-1].mean(axis=(1, 2))))
    levels = (round(100 * float(each), 1) for each in found[best].mean(axis=0))
    return {**{name: asdict(grid[best])[name] for name in GRID}, "levels": dict(zip(COUNTED, levels, strict=True))}


def by_others(name: str, all_found: Mapping[str, Found], grid: Sequence[RouterRecipe]) -> dict[str, Any]:
    """The recipe that leads cosine by most on the other sets, each set alike, and its R@10 on this one."""
    leads = [(found[:-1] - found[-1]).mean(axis=(1, 2)) for other, found in all_found.items() if other != name]
    best = int(np.argmax(np.mean(leads, axis=0)))
    found = all_found[name]
    levels = {
        level: {
            "router": round(100 * float(found[best, :, place].mean()), 1),
            "dense": round(100 * float(found[-1, :, place].mean()), 1),
            "more": int((found[best] > found[-1])[:, place].sum()),
            "less": int((found[best] < found[-1])[:, place].sum()),
        }
        for place, level in enumerate(COUNTED)
    }
    return {**{each: asdict(grid[best])[each] for each in GRID}, "levels": levels}


async def main() -> None:
    """Measure and print."""
    folder = data_folder()
    if folder is None:
        sys.exit("BANYAN_BENCH_DATA names no folder of data sets")
    settings = Settings(tree=TreeSettings(structure="memgas"))
    grid = recipes()
    result: dict[str, Any] = {"recipes": len(grid)}
    all_found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as temporary:
        kept = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        for name, form in SETS.items():
            dataset = load(form, folder / name).marked(*conditions(settings))
            memory, _, _ = await open_memory(settings, kept / name)
            async with memory:
                await fill(memory, dataset, stop=asyncio.Event(), report=lambda *_: None)
                await memory.fresh()
                found, owners = await measure(memory, dataset, grid)
            all_found[name] = found
            result[name] = {
                "questions": len(owners),
                "trees": len(set(owners)),
                "in_force": in_force(found),
                "best": best_of(found, grid),
                "held_out": judged(found, grid, owners),
            }
            print(f"{name}: {json.dumps(result[name])}", file=sys.stderr, flush=True)
    result["by_other_sets"] = {name: by_others(name, all_found, grid) for name in SETS}
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main())

"""Entries, queries and answers of a node index, as its tests make and read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from memory.model import EventId, NodeId, NodeKind, TreeId, Vector, mark
from memory.ports.index import Candidate, IndexAnswer, IndexEntry, IndexQuery, NodeIndex
from tests.fakes.plain_index import unit

TREE, OTHER = TreeId("tree-1"), TreeId("tree-2")
D = 32
START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ["river", "stone", "bridge", "lantern", "copper", "violin", "harbour", "winter", "apple", "thunder", "paper", "signal"]


def leaf(number: int, vector: Vector | None = None, text: str = "", **fields: Any) -> IndexEntry:
    random = np.random.default_rng(number)
    return IndexEntry(
        node=NodeId(f"n{number}"),
        kind=NodeKind.LEAF,
        mark=mark(number + 1, 0),
        vector=unit(random.standard_normal(D)) if vector is None else vector,
        text=text,
        event_id=EventId(f"e{number}"),
        **fields,
    )


def summary(number: int, vector: Vector | None = None, text: str = "") -> IndexEntry:
    return replace(leaf(number, vector, text), kind=NodeKind.SUMMARY, event_id=None)


def about(text: str = "", vector: Vector | None = None, **fields: Any) -> IndexQuery:
    return IndexQuery(vector=unit(np.ones(D)) if vector is None else vector, terms=text, **fields)


def clustered(count: int, seed: int = 0) -> list[IndexEntry]:
    """Entries in clusters, with texts, sequences and fields of every kind."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((12, D))
    entries = []
    for number in range(count):
        group = int(random.integers(12))
        text = " ".join(random.choice(WORDS, size=int(random.integers(1, 9))))
        vector = unit(centres[group] + 0.6 * random.standard_normal(D))
        if number % 7 == 6:
            entries.append(summary(number, vector, text))
            continue
        entries.append(
            leaf(
                number,
                vector,
                text,
                sequence=f"c:{group}" if number % 5 else None,
                conversation=f"{group}",
                speaker=("Ana", "Ben", None)[number % 3],
                source=("The Verge", "Wire")[number % 2],
                at=START + timedelta(minutes=int(random.integers(0, 5000))) if number % 11 else None,
                metadata={"topic": ("work", "home")[number % 2], "n": str(number % 17)},
            )
        )
    return entries


async def fill(index: NodeIndex, entries: Sequence[IndexEntry], batch: int = 64, tree: TreeId = TREE) -> int:
    """Feed entries in batches, one commit each; the commit reached."""
    seq = await index.covered(tree)
    for start in range(0, len(entries), batch):
        assert await index.update(tree, after=seq, seq=seq + 1, upserts=entries[start : start + batch])
        seq += 1
    return seq


def nodes(candidates: Sequence[Candidate]) -> set[str]:
    return {candidate.node for candidate in candidates}


def summed_up(answer: IndexAnswer) -> list[tuple[object, ...]]:
    """What was found, with scores as far as float32 holds them."""
    found = sorted(answer.found, key=lambda candidate: candidate.node)
    return [(c.node, c.position, c.at, round(c.dense, 4), round(c.lexical, 4)) for c in found]


def by_node(answer: IndexAnswer) -> dict[str, Candidate]:
    return {candidate.node: candidate for candidate in answer.found}

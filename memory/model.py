"""The values the domain speaks in (design section 2). All are frozen; handlers derive new ones and never edit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

import numpy as np
from numpy.typing import NDArray

TreeId = NewType("TreeId", str)
"""Name of a tree, `[A-Za-z0-9._:-]{1,128}`."""
NodeId = NewType("NodeId", str)
"""Id of a node, unique within its tree, derived from what it was made of (so that a replay makes the same ids)."""
EventId = NewType("EventId", str)
"""The caller's id of an event, unique within its tree; makes the event idempotent there."""
Mark = NewType("Mark", int)
"""A place in a tree's history, `seq << 20 | step in the commit`: orders arrivals, names a prefix of contributions."""

Vector = NDArray[np.float32]
"""(d,) float32 of unit length, its components representable in float16 (see `memory.tree.similarity.quantize`)."""

ROOT = NodeId("root")
"""The structural node at depth 0: no text, no vector (MemTree, section 3)."""

Attributes = Mapping[str, str | float]
"""What a structure keeps of a node beyond shape, text and vector: labels, granularities, weights. At most 16 short names; values
are texts of at most 1,000 characters, or finite numbers."""
ATTRIBUTES_MAX = 16
ATTRIBUTE_CHARACTERS_MAX = 1_000

MARK_BITS = 20


def mark(seq: int, position: int) -> Mark:
    """Mark of the `position`-th step (from 0, below 2**20) of commit `seq`."""
    return Mark(seq << MARK_BITS | position)


class NodeKind(StrEnum):
    """What a node is."""

    ROOT = "root"
    SUMMARY = "summary"
    LEAF = "leaf"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingModel:
    """What identifies an embedding space; a tree remembers it and refuses another."""

    name: str
    """Scheme and model, e.g. `local:all-MiniLM-L6-v2`. Precision is not part of it where vectors stay comparable."""
    dimension: int
    """Length of a vector, 1 to 8192."""
    unrelated_cosine: float
    """Cosine that unrelated texts have under this model, in [-1, 1): the zero of calibrated cosine (design section 3),
    `similarity = (cosine - unrelated_cosine) / (1 - unrelated_cosine)`. Anchored at MiniLM, for which it is 0 by definition;
    `memory.ports.embedder.measure_unrelated_cosine` says how to find another model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is inserted: a turn, or one chunk of a document. Becomes exactly one leaf."""

    event_id: EventId
    text: str
    """As written; never empty."""
    chunk: int = 0
    """Index of this chunk in its document, from 0; 0 for a turn."""
    chunks: int = 1
    """Chunks of the document; 1 for a turn."""
    conversation: str | None = None
    """Groups turns (a session); neighbours of a turn are looked for inside it."""
    speaker: str | None = None
    source: str | None = None
    url: str | None = None
    title: str | None = None
    at: datetime | None = None
    """When it was said or published, in UTC."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the record carried, JSON values."""

    @property
    def sequence(self) -> str | None:
        """What this item has neighbours in: its conversation, or its document when that has several chunks."""
        if self.conversation is not None:
            return f"c:{self.conversation}"
        return f"d:{self.event_id}" if self.chunks > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as stored (MemTree, section 3: v = [c, e, p, C, d])."""

    id: NodeId
    parent: NodeId | None
    """None for the root only."""
    kind: NodeKind
    depth: int
    """0 for the root, and one more than the parent's from there on; below the root it begins where the structure lets it begin (1
    for most; a structure that grows upwards leaves room, decision 0010)."""
    mark: Mark
    """When it was created."""
    version: int = 1
    """Counts the changes of its own text or vector, from 1."""
    routing: int = 0
    """Counts the changes of its children: added, moved, re-vectored. What a plan relies on."""
    text: str = ""
    vector: Vector | None = None
    """None for the root, or when not asked for."""
    cohesion: float = 1.0
    """Length of the mean of the covered leaves' unit vectors, in (0, 1]: 1 when all are the same. 1 for a leaf."""
    descendants: int = 0
    """Leaves below it; 0 for a leaf. The root's are all leaves of the tree: the store counts them, no `Grow` does."""
    pending: int = 0
    """Leaves below it that its text does not cover yet; 0 for a leaf. `descendants - pending` are covered."""
    provisional: bool = False
    """A summary whose text was put together without the summarizer."""
    item: Item | None = None
    """Of a leaf, what was inserted."""
    attributes: Attributes = field(default_factory=dict)
    """What its structure keeps of it; empty for most."""

    @property
    def covered(self) -> int:
        """Leaves that the text covers."""
        return self.descendants - self.pending


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeInfo:
    """A tree's identity and state."""

    id: TreeId
    structure: str
    """How it grows: `memtree`, …"""
    model: EmbeddingModel
    parameters: Mapping[str, float]
    """The structure's parameters, fixed when the tree is made (for MemTree: base, rate, depth_max)."""
    created_at: datetime
    seq: int = 0
    """Number of the last commit; 0 before the first."""
    floor: int = 0
    """Number of the last commit that removed nodes; 0 when none did. The change log no longer holds what earlier placements were
    compared with, so that they cannot be replayed."""
    redacted: int = 0
    """Up to this commit nothing that was removed is left in the change log (`TreeStore.redact`); below `floor` while there is."""

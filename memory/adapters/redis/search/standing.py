"""Where the index of a tree stands, as it was last read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from memory.adapters.redis.search.keys import SearchKeys
from memory.adapters.redis.search.querying import Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Of one tree."""

    generation: str
    place: str
    dimension: int
    nodes: int
    texts: int
    seq: int
    stamp: str
    writes: str
    """Counts what was written, so that a writer can tell that nobody else did."""
    counts: Sequence[int]
    """Of the terms that were asked for, the texts that they are in."""

    @classmethod
    def of(cls, answer: Sequence[Any]) -> Self | None:
        """What the script said; None for a tree without an index."""
        if not answer:
            return None
        generation, place, dimension, nodes, texts, _, seq, stamp, writes, counts = answer
        return cls(
            generation=generation.decode(),
            place=place.decode(),
            dimension=int(dimension),
            nodes=int(nodes),
            texts=int(texts),
            seq=int(seq),
            stamp=stamp.decode(),
            writes=writes.decode(),
            counts=[int(count or 0) for count in counts],
        )

    def where(self, keys: SearchKeys) -> Where:
        """The index that it is in."""
        return Where(name=self.index(keys)[0], generation=self.generation, place=self.place)

    def index(self, keys: SearchKeys) -> tuple[str, str]:
        """Name of that index, and the prefix of the keys in it."""
        return keys.index(self.generation, self.place, self.dimension)

    def documents(self, keys: SearchKeys) -> str:
        """What the keys of its documents begin with."""
        return keys.documents(self.generation, self.place, self.dimension)

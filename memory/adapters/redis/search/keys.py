"""
Every key of the search index (docs/redis.md has the same table).

A tree's index has a generation: a number that no other has. Made anew, the tree gets another one, and the old one is cleared away.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.adapters.redis.keys import FORMAT
from memory.model import TreeId

ASIDE = "~new"
"""Added to a tree's name while its index is made anew beside it, by `memory.service.reindexing`."""
SHARED, OWN = "shared", "own"
"""Where a tree's nodes are: in the index of all small trees of that dimension, or in one of its own."""


@dataclass(frozen=True, slots=True)
class SearchKeys:
    """Keys and names below a prefix."""

    prefix: str

    @property
    def base(self) -> str:
        """What all keys of the index begin with."""
        return f"{self.prefix}:{FORMAT}:search:"

    def standing(self, tree: TreeId) -> str:
        """Hash: generation, place, dimension, seq, stamp, nodes, texts, length (all texts', in terms), writes."""
        return f"{self.base}t:{tree}"

    @property
    def generations(self) -> str:
        """String: the last generation."""
        return f"{self.base}generations"

    @property
    def leftovers(self) -> str:
        """Hash, generation to place: what is to be cleared away."""
        return f"{self.base}leftovers"

    @property
    def parts(self) -> str:
        """What the keys of generations begin with, other than their documents'."""
        return f"{self.base}g:"

    def made(self, name: str) -> str:
        """String: there once an index was made; when the index then is not, it was lost."""
        return f"{self.base}made:{name}"

    def filling(self, name: str) -> str:
        """String: there while an index that had been lost is filled from the documents; ends by itself."""
        return f"{self.base}filling:{name}"

    def turn(self, tree: TreeId) -> str:
        """String: who brings the tree's index level; ends by itself."""
        return f"{self.base}turn:{tree}"

    def terms(self, generation: str) -> str:
        """Hash, term to the number of texts it is in."""
        return f"{self.parts}{generation}:terms"

    def speakers(self, generation: str) -> str:
        """Hash, speaker to the number of leaves."""
        return f"{self.parts}{generation}:speakers"

    def lines(self, generation: str) -> str:
        """With a sequence's name, encoded: sorted set of its leaves, all with score 0, ordered by time, mark and id."""
        return f"{self.parts}{generation}:line:"

    def documents(self, generation: str, place: str, dimension: int) -> str:
        """With a node's id: hash, the node as it is indexed."""
        return f"{self._documents(place, dimension)}{generation}:"

    def index(self, generation: str, place: str, dimension: int) -> tuple[str, str]:
        """Name of the index that has the generation's documents, and the prefix of all keys that are in it."""
        if place == OWN:
            return f"{self.prefix}:search:own:{generation}", self.documents(generation, place, dimension)
        return f"{self.prefix}:search:shared:{dimension}", self._documents(place, dimension)

    def _documents(self, place: str, dimension: int) -> str:
        return f"{self.base}{place}:{dimension}:"

"""
Every key that Banyan has in Redis (docs/redis.md has the same table).

`<prefix>:1:{<tree>}:<letter>[:<node>]`: the 1 is the version of the layout, the braces make all keys of a tree share one hash slot.
Tree names have no braces; a node's id comes last, so that nothing in it can be taken for a part of the key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memory.model import NodeId, TreeId

FORMAT = 1
"""Version of the layout: the number in every key."""


def format_key(prefix: str) -> str:
    """String: the newest layout that was written here."""
    return f"{prefix}:format"


def trees_key(prefix: str) -> str:
    """Sorted set: names of all trees, all with score 0, so that they are had by name in pages."""
    return f"{prefix}:{FORMAT}:trees"


def budget_key(prefix: str, provider: str) -> str:
    """Hash: the budget of a provider, named by 16 hexadecimal digits; ends by itself when it is not used."""
    return f"{prefix}:{FORMAT}:budget:{provider}"


@dataclass(frozen=True, slots=True)
class TreeKeys:
    """Keys of one tree."""

    base: str
    leases: tuple[str, ...]
    """
    What leases are kept in, in the order the scripts want it.

    `le` sorted set, token by end; `lh` hash, token to nodes and waiter; `ln` hash, node to holders; `lg` hash, waiter to token;
    `lq` sorted set, waiters by arrival; `ls` sorted set, waiters by when they count as gone;
    `lw` hash, waiter to what it wants; `lt` string, the last token.
    """

    @classmethod
    def of(cls, prefix: str, tree: TreeId) -> TreeKeys:
        """Keys of a tree."""
        base = f"{prefix}:{FORMAT}:{{{tree}}}:"
        return cls(base, tuple(f"{base}l{letter}" for letter in "ehngqswt"))

    @property
    def identity(self) -> str:
        """String: structure, embedding model, parameters, time of creation. Written once."""
        return self.base + "i"

    @property
    def state(self) -> str:
        """Hash: `seq`, `dimension` and the counters."""
        return self.base + "s"

    @property
    def nodes(self) -> str:
        """Hash, node to row: kind, depth, counters, mark, parent, attributes (36 bytes, the parent's id, attributes if any)."""
        return self.base + "n"

    @property
    def content(self) -> str:
        """Hash, node to vector (float16), text and item."""
        return self.base + "x"

    @property
    def order(self) -> str:
        """List: ids of all nodes as they were made."""
        return self.base + "o"

    @property
    def events(self) -> str:
        """Hash, event to receipt."""
        return self.base + "e"

    @property
    def log(self) -> str:
        """Stream: one entry a commit, numbered seq-0."""
        return self.base + "g"

    @property
    def bodies(self) -> str:
        """Hash, commit to the body of its entry: what a stream has cannot be changed, and a body has what may be forgotten."""
        return self.base + "b"

    @property
    def dirty(self) -> str:
        """Sorted set: nodes with contributions, deepest first, then oldest first."""
        return self.base + "d"

    @property
    def links(self) -> str:
        """List: edges of the association graph in the order of their making, one element a `Link`."""
        return self.base + "a"

    @property
    def strays(self) -> str:
        """Hash, node to those of its contributions that are neither of the commit that made their leaf nor of its own."""
        return self.base + "r"

    def children(self, node: NodeId) -> str:
        """Sorted set: a node's children by mark."""
        return f"{self.base}k:{node}"

    def contributions(self, node: NodeId) -> str:
        """List: a node's contributions, oldest first."""
        return f"{self.base}c:{node}"

    @property
    def lease_ends(self) -> str:
        """The first of `leases`."""
        return self.base + "le"

    @property
    def wake(self) -> str:
        """With a waiter's name added: list that wakes the waiter."""
        return self.base + "lu:"

    def claim(self, node: NodeId) -> str:
        """String: token of the claim on a node that is being summarized; ends by itself."""
        return f"{self.base}u:{node}"

    @property
    def failures(self) -> str:
        """Hash, node to what is known of its failed summaries."""
        return self.base + "f"

    def whole(self) -> Iterable[str]:
        """The keys that exist at most once a tree and grow with it."""
        of_nodes = (self.nodes, self.content, self.order, self.dirty, self.links, self.strays)
        return (self.identity, self.state, self.events, self.log, self.bodies, *of_nodes)

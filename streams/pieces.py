"""A tree that is drawn by a service: what is more than it draws at once is asked for in pieces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from memory.errors import NodeNotFoundError, QueryError
from memory.model import NodeId
from memory.results import TreeNode

NODES_AT_ONCE = 20_000
"""Nodes that there may be in an answer of the service: of each as many children as are asked for."""
LEVELS_AT_ONCE = 64
PIECES_MAX = 500
"""Requests for one drawing."""


class Pieces:
    """
    Draws one tree.

    Args:
        ask: a node and what is so many levels below it.
        children: most of one node, 1 or more.
    """

    def __init__(self, ask: Callable[[NodeId, int], Awaitable[TreeNode]], *, children: int) -> None:
        self._ask = ask
        self._levels = 1
        while self._levels < LEVELS_AT_ONCE and children ** (self._levels + 1) <= NODES_AT_ONCE:
            self._levels += 1
        self._asked = 0

    async def drawn(self, node: NodeId, depth: int | None) -> TreeNode:
        """
        A node and what is so many levels below it; None for all.

        Raises:
            QueryError: it takes more than `PIECES_MAX` pieces.
        """
        self._asked += 1
        if self._asked > PIECES_MAX:
            raise QueryError(
                f"what is to be drawn takes more than {PIECES_MAX:,} requests of the service: ask for fewer levels or children, or "
                "begin at a node further down (--depth, --children, --node)"
            )
        levels = self._levels if depth is None else min(depth, self._levels)
        top = await self._ask(node, levels)
        left = None if depth is None else depth - levels
        return top if left == 0 else replace(top, children=tuple([await self._deeper(each, left) for each in top.children]))

    async def _deeper(self, node: TreeNode, left: int | None) -> TreeNode:
        if node.children:
            return replace(node, children=tuple([await self._deeper(each, left) for each in node.children]))
        if not node.hidden:
            return node
        try:
            below = await self.drawn(node.id, left)
        except NodeNotFoundError:  # it went meanwhile
            return node
        return replace(node, children=below.children, hidden=below.hidden)

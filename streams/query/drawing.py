"""What a page needs to draw a tree that is far larger than a screen: the largest parts first, and what lies above a node."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import Field

from memory.errors import NodeNotFoundError
from memory.model import MARK_BITS, ROOT, Mark, Node, NodeId, NodeKind, TreeId
from memory.ports.store import TreeStore
from streams.query import shapes, tree_models
from streams.query.shown import SUMMARY_TEXT, No, drawn

CHILDREN_PER_READ = 1_000
SHARE_MIN = 1 / 5_000
"""Of the leaves below the first node: what has less is no thicker than a line in any picture."""
CHILDREN_READ = 20_000
"""Children of one node, the oldest, that are put in order; further ones follow as they were created."""
_LEAST_MARK = 1 << MARK_BITS
"""No node has a smaller mark: commits begin with 1. Smaller numbers are places in the order by size."""


class MappedNode(tree_models.DrawnNode):
    """One node of a picture that holds the largest parts of a tree."""

    shown: ClassVar[Mapping[str, Any]] = drawn(
        tree_models.NodeBelow.example(), above={"descendants": 2}, texts=(SUMMARY_TEXT, ""), hidden=0, unread=False
    )
    children: list[MappedNode]  # type: ignore[assignment]
    hidden: int | None = Field(  # type: ignore[assignment]
        description="Children that are left out, of those that were looked at; null where nobody has looked, because others were "
        "larger."
    )
    unread: No = Field(description="It has more children than are looked at: only the oldest 20,000 of them were.")


@dataclass(slots=True)
class _Part:
    """A node of the picture."""

    node: Node
    children: list[_Part] = field(default_factory=list)
    hidden: int | None = None
    """Children that are left out; None where nobody has looked."""
    unread: bool = False
    """Whether there are children beyond `CHILDREN_READ`, which nobody has looked at."""


class Drawing:
    """
    Reads parts of a tree by their size.

    Args:
        store: of the trees.
    """

    def __init__(self, store: TreeStore) -> None:
        self._store = store

    async def by_size(self, tree: TreeId, node: NodeId) -> tuple[list[Node], bool]:
        """
        A node's children, those with most leaves first, then the oldest; without vectors.

        Returns:
            The oldest `CHILDREN_READ` of them, and whether there are more.
        """
        found: list[Node] = []
        more = True
        while more and len(found) < CHILDREN_READ:
            after = found[-1].mark if found else Mark(0)
            page = await self._store.children(tree, node, limit=CHILDREN_PER_READ, after=after)
            found.extend(page)
            more = len(page) == CHILDREN_PER_READ
        if more:
            more = bool(await self._store.children(tree, node, limit=1, after=found[-1].mark))
        return sorted(found, key=lambda child: (-child.descendants, child.mark)), more

    async def page_by_size(self, tree: TreeId, node: NodeId, *, limit: int, after: int) -> tuple[list[Node], int | None]:
        """
        A page of a node's children, and where the next one begins; None after the last.

        The oldest `CHILDREN_READ` come by size, further ones as they were created.

        Args:
            tree: which.
            node: whose children.
            limit: most of them; 0 reads none.
            after: 0, or where the page before said that the next one begins.
        """
        if not limit:
            return [], None
        if after < _LEAST_MARK:
            found, more = await self.by_size(tree, node)
            if after + limit < len(found):
                return found[after : after + limit], after + limit
            return found[after:], max(child.mark for child in found) if more else None
        page = await self._store.children(tree, node, limit=limit, after=Mark(after))
        return page, page[-1].mark if len(page) == limit else None

    async def path(self, tree: TreeId, node: Node) -> list[Node]:
        """The summaries above a node, the uppermost first."""
        if node.parent is None or node.parent == ROOT:
            return []
        above = await self._store.lineage(tree, [node.parent])
        path: list[Node] = []
        parent = above.get(node.parent)
        while parent is not None:
            path.append(parent)
            parent = above.get(parent.parent) if parent.parent is not None else None
        return path[::-1]

    async def largest(self, tree: TreeId, node: NodeId, *, nodes: int, children: int, characters: int) -> dict[str, Any]:
        """
        The largest parts of a tree, nested, for a picture: whatever is largest is opened next.

        What has less than `SHARE_MIN` of the leaves is left out, and counted as hidden.

        Args:
            tree: which.
            node: where to start.
            nodes: most nodes of the picture, besides the first.
            children: most children of one node.
            characters: of each text; longer ones are cut.

        Raises:
            NodeNotFoundError: no such node.
        """
        start = (await self._store.nodes(tree, [node])).get(node)
        if start is None:
            await self._store.tree(tree)
            raise NodeNotFoundError(f"tree {tree!r} has no node {node[:100]!r}")
        top = _Part(start)
        level = len(await self.path(tree, start)) + (start.kind is not NodeKind.ROOT)
        waiting: list[tuple[int, int, _Part]] = [(0, 0, top)]
        least = start.descendants * SHARE_MIN
        left = nodes
        while waiting and left > 0:
            part = heapq.heappop(waiting)[2]
            below, part.unread = await self.by_size(tree, part.node.id)
            seen = sum(max(1, child.descendants) >= least for child in below)
            part.children = [_Part(child) for child in below[: min(children, left, seen)]]
            part.hidden = len(below) - len(part.children)
            left -= len(part.children)
            for child in part.children:
                if child.node.kind is not NodeKind.LEAF:
                    heapq.heappush(waiting, (-child.node.descendants, child.node.mark, child))
        return _json(top, level, characters)


def _json(part: _Part, level: int, characters: int) -> dict[str, Any]:
    is_leaf = part.node.kind is NodeKind.LEAF
    return {
        **shapes.child_json(part.node),
        "depth": level,
        "text": cut(part.node.text, characters),
        "children": [_json(child, level + 1, characters) for child in part.children],
        "hidden": 0 if is_leaf else part.hidden,
        "unread": part.unread,
    }


def cut(text: str, characters: int) -> str:
    """The beginning of a text, with an ellipsis where more follows."""
    return text if len(text) <= characters else text[: max(0, characters - 1)].rstrip() + "…"

"""A tree that is larger than a service draws at once is drawn the same as by a memory of one's own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from memory.errors import NodeNotFoundError, QueryError
from memory.model import NodeId, NodeKind
from memory.results import TreeNode
from streams.pieces import NODES_AT_ONCE, PIECES_MAX, Pieces
from streams.query.reading import DRAWN_MAX


def node(name: str, depth: int, *below: TreeNode) -> TreeNode:
    kind = NodeKind.ROOT if not depth else NodeKind.SUMMARY if below else NodeKind.LEAF
    return TreeNode(
        id=NodeId(name),
        kind=kind,
        depth=depth,
        text=name,
        descendants=sum(each.descendants for each in below) or 1,
        pending=0,
        provisional=False,
        event_id=None,
        speaker=None,
        at=None,
        children=below,
        hidden=0,
    )


def grown(name: str, depth: int, levels: int, width: int) -> TreeNode:
    return node(name, depth, *(grown(f"{name}.{number}", depth + 1, levels - 1, width) for number in range(width if levels else 0)))


def cut(whole: TreeNode, depth: int | None, children: int) -> TreeNode:
    """As it is drawn to a depth."""
    if depth == 0:
        return replace(whole, children=(), hidden=len(whole.children))
    shown = whole.children[:children]
    below = tuple(cut(each, None if depth is None else depth - 1, children) for each in shown)
    return replace(whole, children=below, hidden=len(whole.children) - len(shown))


def find(whole: TreeNode, name: NodeId) -> TreeNode | None:
    if whole.id == name:
        return whole
    return next((found for each in whole.children if (found := find(each, name))), None)


class Service:
    """Draws so many nodes at once, and counts how often it is asked."""

    def __init__(self, whole: TreeNode, children: int) -> None:
        self.whole = whole
        self.children = children
        self.asked: list[tuple[str, int]] = []
        self.gone: set[str] = set()

    async def draw(self, name: NodeId, depth: int) -> TreeNode:
        assert self.children**depth <= DRAWN_MAX, "the service refuses it"
        self.asked.append((name, depth))
        found = find(self.whole, name)
        if found is None or name in self.gone:
            raise NodeNotFoundError(name)
        return cut(found, depth, self.children)


def test_the_service_draws_as_much_as_it_is_thought_to() -> None:
    assert NODES_AT_ONCE == DRAWN_MAX


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 6, None])
@pytest.mark.parametrize("children", [3, 100])
async def test_it_is_drawn_as_at_once(depth: int | None, children: int) -> None:
    service = Service(grown("r", 0, 5, 4), children)
    drawn = await Pieces(service.draw, children=children).drawn(NodeId("r"), depth)
    assert drawn == cut(service.whole, depth, children)


async def test_what_fits_is_asked_for_at_once_and_no_piece_twice() -> None:
    service = Service(grown("r", 0, 5, 4), 100)
    await Pieces(service.draw, children=100).drawn(NodeId("r"), 2)
    assert service.asked == [("r", 2)]
    await Pieces(service.draw, children=100).drawn(NodeId("r"), 4)
    pieces = sorted(service.asked[1:])
    assert len(pieces) == 1 + 16
    assert all(one != other for one, other in pairwise(pieces))


async def test_a_chain_is_followed_to_its_end() -> None:
    service = Service(grown("r", 0, 100, 1), 20)
    assert await Pieces(service.draw, children=20).drawn(NodeId("r"), None) == service.whole


async def test_what_takes_too_many_requests_is_refused_with_what_to_do() -> None:
    service = Service(grown("r", 0, 3, 25), 100)
    with pytest.raises(QueryError, match="--depth, --children, --node"):
        await Pieces(service.draw, children=100).drawn(NodeId("r"), 3)
    assert len(service.asked) == PIECES_MAX


async def test_what_goes_meanwhile_is_left_as_it_was_seen() -> None:
    service = Service(grown("r", 0, 3, 2), 100)
    service.gone.add("r.1.0")
    drawn = await Pieces(service.draw, children=100).drawn(NodeId("r"), 3)
    gone = find(drawn, NodeId("r.1.0"))
    assert gone is not None
    assert (gone.children, gone.hidden) == ((), 2)


async def test_a_node_that_is_not_there_is_told() -> None:
    with pytest.raises(NodeNotFoundError):
        await Pieces(Service(grown("r", 0, 1, 1), 9).draw, children=9).drawn(NodeId("nowhere"), 1)

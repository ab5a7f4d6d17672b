"""A tree with a family: a summary and near-identical leaves below it; and whether all its summaries are fresh."""

from __future__ import annotations

from memory.model import ROOT, Node, NodeId, NodeKind
from tests.fakes.world import TREE, World, turn


async def family(world: World, leaves: int = 6, *, start: int = 0) -> NodeId:
    """A summary with near-identical leaves below it, through one or more levels; the topmost one."""
    await world.put(*(turn(f"x{start + number}", f"the same few words about a boat {number % 2}") for number in range(leaves)))
    [top] = [node for node in await world.store.children(TREE, ROOT) if node.kind is NodeKind.SUMMARY]
    return top.id


async def node_of(world: World, node: NodeId) -> Node:
    return (await world.store.nodes(TREE, [node], vectors=True))[node]


async def summaries(world: World) -> list[Node]:
    return [node async for node in world.store.all_nodes(TREE) if node.kind is NodeKind.SUMMARY]


async def assert_fresh_and_sound(world: World) -> None:
    assert (await world.inspect.check(TREE)).violations == ()
    stats = await world.store.stats(TREE)
    assert (stats.pending, stats.dirty) == (0, 0)
    assert not [node for node in await summaries(world) if node.provisional]

"""What every `NodeIndex` must do to be made anew while it answers."""

from __future__ import annotations

import asyncio

from memory.model import TreeId
from memory.ports.index import NodeIndex
from tests.contract.node_indexes import Opener
from tests.fakes.index_entries import OTHER, TREE, D, about, clustered, fill, leaf, nodes

ASIDE = TreeId("tree-1~new")


async def test_the_size_is_the_number_of_nodes_that_are_held(index: NodeIndex) -> None:
    assert await index.size(TREE) == 0
    entries = clustered(50)
    await fill(index, entries, batch=20)
    assert await index.size(TREE) == 50
    seq = await index.covered(TREE)
    await index.update(TREE, after=seq, seq=seq + 1, upserts=entries[:5], removes=[entries[9].node])
    assert (await index.size(TREE), await index.size(OTHER)) == (49, 0)


async def test_what_was_made_aside_is_the_tree_at_once_and_the_old_is_gone(index: NodeIndex) -> None:
    await index.update(TREE, after=0, seq=3, upserts=[leaf(1, text="copper")], stamp="old")
    await index.prepare(ASIDE, nodes=2, dimension=D)
    assert await index.covered(ASIDE) == 0
    await index.update(ASIDE, after=0, seq=3, upserts=[leaf(2, text="copper"), leaf(3, text="paper")], stamp="new")
    assert nodes((await index.search(TREE, about("copper"))).found) == {"n1"}, "until it is adopted, the old one answers"
    assert await index.adopt(TREE, ASIDE)
    answer = await index.search(TREE, about("copper"))
    assert (nodes(answer.found), answer.seq) == ({"n2", "n3"}, 3)
    assert (await index.covered(TREE), await index.stamp(TREE), await index.size(TREE)) == (3, "new", 2)
    assert (await index.covered(ASIDE), await index.size(ASIDE)) == (0, 0)
    assert await index.update(TREE, after=3, seq=4, upserts=[leaf(4, text="copper")])
    assert nodes((await index.search(TREE, about("copper"))).found) == {"n2", "n3", "n4"}


async def test_what_covers_less_is_not_adopted(index: NodeIndex) -> None:
    assert not await index.adopt(TREE, ASIDE), "there is nothing"
    await index.update(TREE, after=0, seq=3, upserts=[leaf(1, text="copper")])
    await index.update(ASIDE, after=0, seq=2, upserts=[leaf(2, text="copper")])
    assert not await index.adopt(TREE, ASIDE)
    assert nodes((await index.search(TREE, about("copper"))).found) == {"n1"}
    assert await index.update(ASIDE, after=2, seq=3, upserts=[])
    assert await index.adopt(TREE, ASIDE)
    assert nodes((await index.search(TREE, about("copper"))).found) == {"n2"}


async def test_a_tree_without_an_index_can_adopt_one(index: NodeIndex) -> None:
    await index.update(ASIDE, after=0, seq=2, upserts=[leaf(2, text="copper")])
    assert await index.adopt(TREE, ASIDE)
    assert nodes((await index.search(TREE, about("copper"))).found) == {"n2"}


async def test_searches_while_one_is_adopted_see_the_old_or_the_new(index: NodeIndex) -> None:
    old, new = [leaf(number, text="copper") for number in range(20)], [leaf(100 + number, text="copper") for number in range(30)]
    await fill(index, old, batch=20)
    query = about("copper", dense_k=100, lexical_k=100)
    seen: set[int] = set()

    async def ask() -> None:
        for _ in range(30):
            found = nodes((await index.search(TREE, query)).found)
            assert found in ({entry.node for entry in old}, {entry.node for entry in new})
            seen.add(len(found))

    async def swap() -> None:
        await fill(index, new, batch=30, tree=ASIDE)
        assert await index.adopt(TREE, ASIDE)

    await asyncio.gather(ask(), ask(), swap())
    await ask()
    assert 30 in seen


async def test_another_instance_sees_the_adopted_one(opener: Opener) -> None:
    writer, reader = await opener(), await opener()
    await fill(writer, [leaf(number, text="copper") for number in range(5)])
    assert len((await reader.search(TREE, about("copper"))).found) == 5
    await fill(writer, [leaf(number, text="paper") for number in range(3)], tree=ASIDE)
    assert await writer.adopt(TREE, ASIDE)
    assert len((await reader.search(TREE, about("copper"))).found) == 3
    assert await reader.size(TREE) == 3


async def test_a_turn_can_be_extended_and_given_back(index: NodeIndex) -> None:
    assert await index.take_turn(TREE, seconds=30)
    assert await index.take_turn(TREE, seconds=30)
    assert await index.take_turn(OTHER, seconds=30)
    await index.end_turn(TREE)
    await index.end_turn(TREE)
    assert await index.take_turn(TREE, seconds=30)

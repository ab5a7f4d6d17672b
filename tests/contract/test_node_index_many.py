"""What every `NodeIndex` must keep with many updates, many tasks and several instances."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from memory.model import NodeId, NodeKind, TreeId
from memory.ports.index import IndexUpdate, NodeIndex, Scope
from tests.contract.node_indexes import Opener
from tests.fakes.index_entries import OTHER, TREE, D, about, clustered, fill, leaf, nodes, summary, summed_up
from tests.fakes.plain_index import unit

EMPTY, UNKNOWN = TreeId("empty"), TreeId("unknown")


async def test_one_vector_dimension_a_tree(index: NodeIndex) -> None:
    await index.update(TREE, after=0, seq=1, upserts=[leaf(1)])
    with pytest.raises(ValueError, match="dimension"):
        await index.update(TREE, after=1, seq=2, upserts=[leaf(2, unit(np.ones(D + 1)))])
    with pytest.raises(ValueError, match="dimension"):
        await index.search(TREE, about(vector=unit(np.ones(D + 1))))
    assert await index.covered(TREE) == 1


async def test_many_small_updates_give_the_same_as_one(index: NodeIndex) -> None:
    entries = clustered(400)
    rewrites = [replace(entry, text=f"thunder {number}") for number, entry in enumerate(entries[6::7])]
    await fill(index, entries, batch=1)
    await index.search(TREE, about("thunder"))
    await fill(index, rewrites, batch=1)
    final = {entry.node: entry for entry in [*entries, *rewrites]}
    await index.update(OTHER, after=0, seq=1, upserts=list(final.values()))
    query = about("thunder river 3", dense_k=400, lexical_k=400)
    many, one = [sorted((await index.search(tree, query)).found, key=lambda c: c.node) for tree in (TREE, OTHER)]
    assert [(c.node, c.position, c.speaker, c.at) for c in many] == [(c.node, c.position, c.speaker, c.at) for c in one]
    assert [c.lexical for c in many] == pytest.approx([c.lexical for c in one], rel=1e-5)


async def test_what_is_asked_at_the_same_time_is_answered_as_if_alone(index: NodeIndex) -> None:
    await fill(index, clustered(300))
    scopes = [Scope(), Scope(speaker="Ana"), Scope(kinds=frozenset({NodeKind.SUMMARY}))]
    queries = [
        replace(about(f"river {number}", unit(np.random.default_rng(number).standard_normal(D))), scope=scopes[number % 3])
        for number in range(24)
    ]
    alone = [await index.search(TREE, query) for query in queries]
    wrong = about(vector=unit(np.ones(D + 1)))
    left = asyncio.create_task(index.search(TREE, queries[1]))
    asked = [asyncio.create_task(index.search(tree, query)) for query in queries for tree in (TREE, EMPTY)]
    refused = [asyncio.create_task(index.search(TREE, wrong)) for _ in range(3)]
    await asyncio.sleep(0)
    left.cancel()
    together = (await asyncio.gather(*asked))[::2]
    assert all(isinstance(error, ValueError) for error in await asyncio.gather(*refused, return_exceptions=True))
    for query, one, other in zip(queries, alone, together, strict=True):
        assert (nodes(one.found), nodes(one.around)) == (nodes(other.found), nodes(other.around)), query.scope
        assert [each.dense for each in other.found] == pytest.approx([each.dense for each in one.found], abs=1e-6)
    assert left.cancelled()


async def test_searches_during_updates_see_whole_updates(index: NodeIndex) -> None:
    pair = 2

    async def write() -> None:
        for seq in range(60):
            batch = [leaf(seq * pair + offset, text="copper") for offset in range(pair)]
            assert await index.update(TREE, after=seq, seq=seq + 1, upserts=batch)

    async def read() -> int:
        seen = 0
        for _ in range(60):
            answer = await index.search(TREE, about("copper", dense_k=500, lexical_k=500))
            assert len(answer.found) == answer.seq * pair
            assert answer.seq >= seen
            seen = answer.seq
        return seen

    await asyncio.gather(write(), read(), read())
    assert await read() == 60


async def test_what_was_covered_before_closing_is_covered_after_opening(opener: Opener) -> None:
    entries = clustered(300)
    first = await opener()
    seq = await fill(first, entries, batch=7)
    query = about("copper violin", dense_k=20, lexical_k=20, spread=1)
    before = await first.search(TREE, query)
    await first.close()
    await first.close()
    second = await opener()
    assert await second.covered(TREE) == seq
    after = await second.search(TREE, query)
    assert {c.node: (c.position, c.at, c.event_id) for c in after.found} == {
        c.node: (c.position, c.at, c.event_id) for c in before.found
    }
    assert nodes(after.around) == nodes(before.around)


async def test_a_second_instance_sees_what_the_first_did(opener: Opener) -> None:
    writer, reader = await opener(), await opener()
    seq = 0
    for round_ in range(40):
        upserts = [leaf(round_, text=f"copper w{round_}", sequence="c:1"), summary(1000, text=f"garden v{round_}")]
        removes = [NodeId(f"n{round_ - 3}")] if round_ > 3 else []
        assert await writer.update(TREE, after=seq, seq=seq + 2, upserts=upserts, removes=removes)
        seq += 2
        assert await reader.covered(TREE) == seq
        if round_ % 3 == 0:
            ours = await writer.search(TREE, about(f"w{round_} v{round_}"))
            theirs = await reader.search(TREE, about(f"w{round_} v{round_}"))
            assert theirs.seq == seq
            assert summed_up(theirs) == summed_up(ours)
    assert not await reader.update(TREE, after=seq - 2, seq=seq + 9, upserts=[leaf(77)])
    assert await reader.update(TREE, after=seq, seq=seq + 1, upserts=[leaf(77)])
    assert "n77" in nodes((await writer.search(TREE, about())).found)


async def test_a_tree_dropped_and_made_again_elsewhere_is_seen_as_the_new_one(opener: Opener) -> None:
    writer, reader = await opener(), await opener()
    await fill(writer, [leaf(number, text="copper") for number in range(10)], batch=2)
    assert len((await reader.search(TREE, about("copper"))).found) == 10
    await writer.drop(TREE)
    await fill(writer, [leaf(100 + number, text="paper") for number in range(5)], batch=1)
    assert nodes((await reader.search(TREE, about("copper"))).found) == {f"n{100 + number}" for number in range(5)}


async def test_several_trees_are_moved_on_together_each_as_by_itself(index: NodeIndex) -> None:
    await index.update(OTHER, after=0, seq=4, upserts=[leaf(9, text="copper")], stamp="four")
    updates = [
        IndexUpdate(tree=TREE, after=0, seq=2, upserts=[leaf(1, text="river"), leaf(2, text="stone")], stamp="two"),
        IndexUpdate(tree=OTHER, after=3, seq=5, upserts=[leaf(3, text="lantern")], stamp="never"),
        IndexUpdate(tree=EMPTY, after=0, seq=1, upserts=[], stamp="one"),
    ]
    assert await index.update_all(updates) == [True, False, True]
    assert await index.standing([TREE, OTHER, EMPTY, UNKNOWN]) == {
        TREE: (2, "two"),
        OTHER: (4, "four"),
        EMPTY: (1, "one"),
        UNKNOWN: (0, ""),
    }
    assert nodes((await index.search(TREE, about("river stone"))).found) == {"n1", "n2"}
    assert nodes((await index.search(OTHER, about("lantern copper"))).found) == {"n9"}
    assert await index.update_all([]) == []

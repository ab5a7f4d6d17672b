"""Placement by labels of a model: kept, replayed, and done without where the model is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.errors import SettingError
from memory.model import EventId, TreeId
from memory.results import EventStatus
from memory.service.labelling import REST, WAIT_MAX, known_labels
from memory.structures.hmem import LABEL
from tests.fakes.labels import FakeLabels
from tests.fakes.world import TREE, World, turn


def world(folder: Path, labels: FakeLabels, structure: str = "hmem") -> World:
    return World(folder / "store.db", structure=structure, labels=labels)


async def shape(made: World) -> dict[str, list[str]]:
    """Of each labelled episode the labels of the nodes above it."""
    nodes = {node.id: node async for node in made.store.all_nodes(TREE)}
    found = {}
    for node in nodes.values():
        if node.item is not None:
            above, at = [], node
            while at.parent is not None and at.parent in nodes and nodes[at.parent].parent is not None:
                at = nodes[at.parent]
                above.append(str(at.attributes.get(LABEL)))
            found[str(node.item.event_id)] = above[::-1]
    return found


async def own(made: World, event: str) -> dict[str, object]:
    """The labels that an episode keeps."""
    receipt = (await made.store.receipts(TREE, [EventId(event)]))[EventId(event)]
    return dict((await made.store.nodes(TREE, receipt.leaves))[receipt.leaves[0]].attributes)


async def test_items_go_where_the_model_says(tmp_path: Path) -> None:
    labels = FakeLabels()
    made = world(tmp_path, labels)
    await made.put(*(turn(number) for number in range(16)))
    assert await shape(made) == {
        f"e{number}": [f"Domain {number % 2}", f"Category {number % 4}", f"Trace {number % 8}"] for number in range(16)
    }
    assert [len(texts) for texts, _ in labels.calls] == [4, 4, 4, 4]
    assert ("Domain 0", "Category 0", "Trace 0") in labels.calls[1][1], "what was just said is known to the next call"
    assert made.ingest.labelling is not None
    assert made.ingest.labelling.counters.labelled == 16
    assert (await made.inspect.check(TREE)).violations == ()
    again = await made.put(*(turn(number) for number in range(16)))
    assert len(labels.calls) == 4, f"nothing is asked of what is there: {again}"
    async with made.views.hold(TREE) as view:
        assert len(known_labels(view)) == 8
    await made.close()


async def test_a_model_that_is_away_is_done_without_and_left_alone_for_a_while(tmp_path: Path) -> None:
    labels = FakeLabels(failures=1)
    made = world(tmp_path, labels)
    await made.put(*(turn(number) for number in range(8)))
    assert all(above == ["None"] * 3 for above in (await shape(made)).values())
    await made.put(turn(8))
    assert len(labels.calls) == 1, "it is not asked again at once"
    assert made.ingest.labelling is not None
    assert made.ingest.labelling.resting
    await made.clock.sleep(REST)
    await made.put(turn(9))
    # Where nobody has its labels, an episode may lie below nodes without any; it keeps its own.
    assert await own(made, "e9") == {"domain": "Domain 1", "category": "Category 1", "trace": "Trace 1"}
    assert await own(made, "e8") == {}
    assert made.ingest.labelling is not None
    counters = made.ingest.labelling.counters
    assert (counters.labelled, counters.unlabelled, counters.failed) == (1, 9, 1)
    assert (await made.inspect.check(TREE)).violations == ()
    await made.close()


async def test_a_refused_key_is_said_and_keeps_nothing_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = FakeLabels(failures=1, error=SettingError("the key was refused"))
    made = world(tmp_path, labels)
    assert made.ingest.labelling is not None
    results = await made.put(*(turn(number) for number in range(8)))
    assert {each.status for each in results} == {EventStatus.ACCEPTED}
    [record] = caplog.records
    assert record.getMessage().startswith("what comes is placed without labels for 30 s: the key was refused")
    assert made.ingest.labelling.last_error is labels.error
    assert made.ingest.labelling.counters.unlabelled == 8
    await made.put(turn(8))
    assert len(labels.calls) == 1, "it rests"
    await made.close()


async def test_trees_are_asked_about_side_by_side(tmp_path: Path) -> None:
    labels = FakeLabels(seconds=10)
    made = world(tmp_path, labels)
    begun = made.clock.monotonic()
    trees = [TreeId(f"t{number}") for number in range(5)]
    prepared = await made.ingest.prepare_all({tree: [turn(number, tree=tree) for number in range(4)] for tree in trees})
    assert made.clock.monotonic() - begun < 2 * 10, "as long as one of them takes"
    expected = [(f"Domain {number % 2}", f"Category {number % 4}", f"Trace {number % 8}") for number in range(4)]
    for each in prepared:
        assert [insertion.labels for group in each.insertions for insertion in group] == expected
    await made.close()


async def test_a_batch_waits_for_labels_so_long_and_no_longer(tmp_path: Path) -> None:
    labels = FakeLabels(seconds=25)
    made = world(tmp_path, labels)
    begun = made.clock.monotonic()
    [prepared] = await made.ingest.prepare_all({TREE: [turn(number) for number in range(16)]})
    assert made.clock.monotonic() - begun == pytest.approx(WAIT_MAX, abs=1)
    given = [insertion.labels for group in prepared.insertions for insertion in group]
    assert [bool(each) for each in given] == [True] * 8 + [False] * 8
    assert made.ingest.labelling is not None
    assert made.ingest.labelling.last_error is None, "it answers, if slowly"
    labels.seconds = 10 * WAIT_MAX
    await made.ingest.prepare_all({TREE: [turn(number) for number in range(16)]})
    asked = len(labels.calls)
    await made.ingest.prepare_all({TREE: [turn(number) for number in range(16)]})
    assert len(labels.calls) == asked, "one that says nothing at all is left alone"
    await made.close()


async def test_other_structures_ask_nothing(tmp_path: Path) -> None:
    labels = FakeLabels()
    made = world(tmp_path, labels, "memtree")
    await made.put(turn(0))
    assert labels.calls == []
    await made.close()

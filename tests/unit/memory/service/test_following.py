"""Trees that were asked lately are followed, and only those."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from memory.errors import StoreUnavailableError, TreeMismatchError
from memory.model import TreeId
from memory.ports.index import Scope
from memory.service.following import FOLLOWED, PAUSE_MAX, TREES_MAX, Following
from memory.service.indexing import Indexing
from tests.fakes.memory_index import MemoryIndex
from tests.fakes.virtual_time import LoopClock
from tests.fakes.world import TREE, turn
from tests.unit.memory.service.conftest import MakeWorld

PAUSE = 0.02


class Looked:
    """An index that notes what is looked for."""

    def __init__(self) -> None:
        self.rounds: list[tuple[float, list[TreeId]]] = []
        self.new = False
        self.error: Exception | None = None

    async def catch_up_all(self, trees: Sequence[TreeId]) -> bool:
        self.rounds.append((asyncio.get_running_loop().time(), list(trees)))
        if self.error is not None:
            raise self.error
        return self.new


@pytest.fixture
def looked() -> Looked:
    return Looked()


@pytest.fixture
def following(looked: Looked) -> Following:
    return Following(cast("Indexing", looked), LoopClock(), pause=PAUSE)


async def test_what_others_write_is_indexed_before_the_next_question(make_world: MakeWorld) -> None:
    index = MemoryIndex()
    ours, other = make_world(index=index), make_world()
    following = Following(ours.indexing, LoopClock(), pause=PAUSE)
    ours.query.on_question(following.asked)
    following.start()
    await other.put(turn(0))
    await asyncio.sleep(1)
    assert index.seqs.get(TREE, 0) == 0, "nobody has asked"
    await ours.query.search(TREE, "words", scope=Scope())
    for number in range(1, 4):
        await other.put(turn(number))
        await asyncio.sleep(2 * PAUSE_MAX)
        assert index.seqs[TREE] == number + 1
    await following.stop()
    await following.stop()
    await other.put(turn(9))
    await asyncio.sleep(1)
    assert index.seqs[TREE] == 4


async def test_it_looks_often_while_something_comes_and_seldom_while_nothing_does(looked: Looked, following: Following) -> None:
    looked.new = True
    following.asked(TREE)
    following.start()
    await asyncio.sleep(1)
    assert len(looked.rounds) == pytest.approx(1 / PAUSE, abs=2)
    looked.rounds.clear()
    looked.new = False
    await asyncio.sleep(10)
    assert len(looked.rounds) < 10 / PAUSE_MAX + 10
    looked.rounds.clear()
    await asyncio.sleep(FOLLOWED)
    looked.rounds.clear()
    await asyncio.sleep(10)
    assert not looked.rounds, "the last question was long ago"
    await following.stop()


async def test_of_very_many_trees_those_asked_last_are_followed(looked: Looked, following: Following) -> None:
    names = [TreeId(f"t{number}") for number in range(TREES_MAX + 5)]
    for name in [*names, names[10]]:
        following.asked(name)
    following.start()
    await asyncio.sleep(PAUSE / 2)
    [(_, trees)] = looked.rounds
    assert trees == [*names[5:10], *names[11:], names[10]]
    await following.stop()


async def test_a_store_that_is_away_is_looked_at_again_and_a_tree_that_cannot_be_followed_is_let_go(
    looked: Looked, following: Following
) -> None:
    following.asked(TREE)
    following.start()
    looked.error = StoreUnavailableError("the fake store is away")
    await asyncio.sleep(10)
    assert len(looked.rounds) > 30
    looked.error = TreeMismatchError("another dimension")
    await asyncio.sleep(1)
    looked.rounds.clear()
    await asyncio.sleep(10)
    assert not looked.rounds
    looked.error = None
    following.asked(TREE)
    await asyncio.sleep(1)
    assert looked.rounds
    await following.stop()


async def test_a_defect_is_reported_and_following_goes_on(
    looked: Looked, following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    following.asked(TREE)
    following.start()
    looked.error = ZeroDivisionError("a defect")
    await asyncio.sleep(10)
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is looked.error
    looked.error = None
    looked.rounds.clear()
    following.asked(TREE)
    await asyncio.sleep(1)
    assert looked.rounds
    await following.stop()

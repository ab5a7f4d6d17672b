"""Profiles: what somebody said of themselves, kept as the tree goes on, the same whenever it is begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory.adapters.embedded.extractive import ExtractiveKeywords, ExtractiveStatements
from memory.errors import TreeNotFoundError
from memory.model import TreeId
from memory.records import Feedback, Turn
from memory.results import Profile
from memory.service import profiles as module
from memory.service.profiles import Profiles
from tests.fakes.clock import FakeClock
from tests.fakes.world import TREE, World

START = datetime(2026, 1, 1, tzinfo=UTC)
SAID = (
    ("Ana", "I moved to Porto with my brother Rui in May 2024. Isn't it lovely?"),
    ("Ben", "Wow! I know!"),
    ("Ana", "I work as a violin teacher at the Harbour School."),
    ("Ben", "My dog Rex is three years old and hates the rain. Do I look tired?"),
    ("Ana", "The weather was fine."),
    ("Ana", "I work as a violin teacher at the Harbour School now."),
    ("Ben", "I bought a red bicycle for the ride to the office in Lisbon."),
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "store.db", structure="hmem")
    yield made
    await made.close()


def profiles(world: World) -> Profiles:
    return Profiles(store=world.store, keywords=ExtractiveKeywords(), statements=ExtractiveStatements())


def turns(first: int, last: int, tree: TreeId = TREE) -> list[Turn]:
    return [
        Turn(tree=tree, id=f"e{place}", speaker=who, text=text, conversation=f"c{place // 4}", at=START + timedelta(days=place))
        for place, (who, text) in enumerate(SAID)
        if first <= place < last
    ]


async def ana(kept: Profiles, facts: int = 20) -> Profile:
    found = await kept.profile(TREE, "Ana", facts=facts)
    assert found is not None
    return found


async def test_who_speaks_and_what_they_say_of_themselves(world: World) -> None:
    await world.put(*turns(0, 7))
    kept = profiles(world)
    assert [(each.name, each.turns) for each in await kept.speakers(TREE)] == [("Ana", 4), ("Ben", 3)]
    found = await ana(kept)
    assert {fact.text for fact in found.facts} == {
        "I moved to Porto with my brother Rui in May 2024.",
        "I work as a violin teacher at the Harbour School now.",
    }, "no question, nothing that is not of herself, and of the same the latest"
    assert (found.turns, found.conversations, found.first_at, found.last_at) == (4, 2, START, START + timedelta(days=5))
    assert any("violin" in phrase.casefold() for phrase in found.phrases)
    assert found.seq == 1
    ben = await kept.profile(TREE, "Ben")
    assert ben is not None
    assert [fact.event_id for fact in ben.facts] == ["e3", "e6"] or [fact.event_id for fact in ben.facts] == ["e6", "e3"]
    assert len((await ana(kept, facts=1)).facts) == 1
    assert (await ana(kept, facts=0)).facts == ()


async def test_it_follows_what_comes_and_is_what_one_made_anew_would_be(world: World) -> None:
    kept = profiles(world)
    await world.put(*turns(0, 3))
    assert (await ana(kept)).turns == 2
    for first, last in ((3, 5), (5, 7)):
        await world.put(*turns(first, last))
        await world.drain()
        anew = await ana(profiles(world))
        followed = await ana(kept)
        # Phrases are found portion by portion, and depend on the portions.
        assert followed == replace(anew, phrases=followed.phrases)
        assert anew.seq == (await world.store.tree(TREE)).seq


async def test_what_is_rebutted_comes_last(world: World) -> None:
    await world.put(*turns(0, 7))
    kept = profiles(world)
    first, second = (await ana(kept)).facts
    said = [Feedback(tree=TREE, id=f"f{n}", event=first.event_id, verdict="rebuttal", at=START) for n in range(6)]
    await world.weighing.take(TREE, said)
    after = await ana(kept)
    assert [fact.event_id for fact in after.facts] == [second.event_id, first.event_id]
    assert after.facts[1].weight == pytest.approx(first.weight / 2**6)
    assert (await ana(profiles(world))).facts == after.facts


async def test_nobody_and_nowhere(world: World) -> None:
    kept = profiles(world)
    with pytest.raises(TreeNotFoundError):
        await kept.profile(TREE, "Ana")
    await world.put(*turns(0, 1))
    assert await kept.profile(TREE, "Carl") is None
    with pytest.raises(TreeNotFoundError):
        await kept.speakers(TreeId("other"))


async def test_what_was_said_stays_in_the_store(world: World) -> None:
    await world.put(*turns(0, 7))
    kept = profiles(world)
    await ana(kept)
    speakers = kept._kept[TREE].speakers
    unread = speakers["Ben"].unread
    assert len(unread) == len(await world.store.nodes(TREE, unread)) == 3, "it is known by its leaf"
    assert speakers["Ana"].unread == [], "her phrases stand for it"


@pytest.mark.real_time
async def test_whoever_is_cut_off_leaves_what_was_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEXTS_PER_CALL", 2)
    monkeypatch.setattr(module, "INLINE_CHARACTERS_MAX", 0)
    await world.put(*turns(0, 6))
    await world.drain()
    read: list[str] = []

    class Noting(ExtractiveStatements):
        def statements(self, text: str) -> Any:
            read.append(text)
            return super().statements(text)

    async def aside(work: Callable[[], Any]) -> Any:
        await asyncio.sleep(1)
        return work()

    monkeypatch.setattr(asyncio, "to_thread", aside)
    kept = Profiles(store=world.store, keywords=ExtractiveKeywords(), statements=Noting())
    tries = 0
    found = None
    while found is None:
        tries += 1
        assert tries < 10, "it never gets on"
        try:
            async with asyncio.timeout(2.5):
                found = await kept.profile(TREE, "Ana")
        except TimeoutError:
            await world.put(*turns(6, 7))
    assert tries > 1
    assert sorted(read) == sorted(text for _, text in SAID), "each turn once"
    anew = await ana(profiles(world))
    assert found == replace(anew, phrases=found.phrases)


@pytest.mark.parametrize("commits", [1, 2, 3], ids=["behind", "as far", "past"])
async def test_what_was_kept_of_another_history_is_not_believed(tmp_path: Path, commits: int) -> None:
    """The store was restored from an older copy and went on from there."""
    lost = World(tmp_path / "a.db", structure="hmem", clock=FakeClock())
    restored = World(tmp_path / "b.db", structure="hmem", clock=FakeClock(datetime(2026, 2, 1, tzinfo=UTC)))
    for first in (0, 2):
        await lost.put(*turns(first, first + 2))
    for first in range(commits):
        await restored.put(*turns(4 + first, 5 + first))
    kept = profiles(lost)
    await ana(kept)
    kept._store = restored.store
    assert await ana(kept) == await ana(profiles(restored))
    await lost.close()
    await restored.close()


async def test_trees_asked_longest_ago_leave_memory_first(world: World) -> None:
    names = [TreeId(f"t{number}") for number in range(3)]
    for name in names:
        await world.put(*turns(0, 7, name))
    kept = Profiles(store=world.store, keywords=ExtractiveKeywords(), statements=ExtractiveStatements(), bytes_max=1)
    for name in [*names, names[0]]:
        assert len(await kept.speakers(name)) == 2
        assert list(kept._kept) == [name]

"""Profiles: what somebody said of themselves, kept as the tree goes on, the same whenever it is begun."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory.adapters.embedded.extractive import ExtractiveKeywords, ExtractiveStatements
from memory.errors import TreeNotFoundError
from memory.model import TreeId
from memory.records import Feedback, Turn
from memory.results import Profile
from memory.service.profiles import Profiles
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


def turns(first: int, last: int) -> list[Turn]:
    return [
        Turn(tree=TREE, id=f"e{place}", speaker=who, text=text, conversation=f"c{place // 4}", at=START + timedelta(days=place))
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

"""Texts of MemGAS' units: a session word for word, its summary, its keywords."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from memory.errors import EmbedderAnswerError, SummarizerAnswerError
from memory.model import Node
from memory.ports.keywords import KeywordExtractor, Keywords
from memory.records import Record
from memory.service.granularities import NO_KEYWORDS, joined, parted, transcript
from memory.service.summarize import JobOutcome
from memory.settings import MemorySettings, SummarySettings
from memory.structures.memgas import GRANULARITY
from tests.fakes.embedder import EmbedderFault, FakeEmbedder
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.world import TREE, World, turn
from tests.unit.memory.service.conftest import MakeWorld

SAID = (
    "I adopted a rescue greyhound called Biscuit",
    "Biscuit! Does the greyhound get on with your cats?",
    "She fears the cats, and the pottery kiln",
    "The pottery kiln? Are you still glazing bowls in Lisbon?",
)


class CountingKeywords(KeywordExtractor):
    """Answers as told, and remembers what it was asked."""

    name = "counting"
    tokens_max = 2_000

    def __init__(self, *phrases: str) -> None:
        self.phrases = phrases
        self.asked: list[tuple[tuple[str, ...], tuple[str, ...], int]] = []

    async def keywords(self, texts: Sequence[str], *, existing: Sequence[str] = (), covered: int = 0) -> Keywords:
        self.asked.append((tuple(texts), tuple(existing), covered))
        return Keywords(phrases=self.phrases, calls=1, tokens_in=10, tokens_out=3)


def session(first: int, last: int, said: Sequence[str] = SAID) -> list[Record]:
    return [
        turn(number, text=said[number % len(said)], conversation="c1", speaker=("Ana", "Ben")[number % 2])
        for number in range(first, last)
    ]


async def units(world: World) -> dict[str, Node]:
    """The units of the one session, by granularity."""
    found = [node async for node in world.store.all_nodes(TREE, vectors=True)]
    return {str(node.attributes[GRANULARITY]): node for node in found if GRANULARITY in node.attributes}


async def test_each_granularity_has_a_text_of_its_own(make_world: MakeWorld) -> None:
    world = make_world(structure="memgas")
    await world.put(*session(0, 4))
    assert await world.drain() == 3
    found = await units(world)
    lines = found["session"].text.split("\n")
    assert [line.split(":")[0].split(" ")[0] for line in lines] == ["Ana", "Ben", "Ana", "Ben"]
    assert [line.partition(": ")[2] for line in lines] == list(SAID)
    assert found["summary"].text.startswith("4 of 4")
    phrases = found["keyword"].text.split(", ")
    assert any("greyhound" in phrase for phrase in phrases)
    assert any("kiln" in phrase for phrase in phrases)
    assert not {"Ana", "Ben"} & set(phrases)
    assert all(node.pending == 0 and not node.provisional for node in found.values())
    assert (await world.inspect.check(TREE)).clean


@pytest.mark.parametrize("vector_from_text", [False, True])
async def test_the_sessions_vector_is_the_mean_and_the_keywords_that_of_their_text(
    make_world: MakeWorld, *, vector_from_text: bool
) -> None:
    """Whatever the summaries' is."""
    world = make_world(structure="memgas", summarizer=FakeSummarizer(vector_from_text=vector_from_text))
    await world.put(*session(0, 4))
    await world.drain()
    found = await units(world)
    leaves = [node async for node in world.store.all_nodes(TREE, vectors=True) if node.item is not None]
    mean = np.mean([leaf.vector for leaf in leaves if leaf.vector is not None], axis=0)
    [text] = await world.embedder.embed([found["keyword"].text], purpose="document")
    for unit, expected in (("session", mean), ("keyword", text)):
        vector = found[unit].vector
        assert vector is not None
        assert float(vector @ expected / np.linalg.norm(expected)) > 0.9999, unit
    assert found["session"].vector is not None
    assert float(found["session"].vector @ text) < 0.99, "the shape this test needs"


async def test_only_the_summary_asks_the_summarizer(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(vector_from_text=True)
    world = make_world(structure="memgas", summarizer=summarizer)
    await world.put(*session(0, 4))
    await world.drain()
    assert len(summarizer.requests) == 1


async def test_what_comes_later_follows_what_is_there(make_world: MakeWorld) -> None:
    keywords = CountingKeywords("greyhound", "pottery kiln")
    world = make_world(structure="memgas", keywords=keywords)
    await world.put(*session(0, 3))
    await world.drain()
    await world.put(*session(3, 5))
    await world.drain()
    found = await units(world)
    assert len(found["session"].text.split("\n")) == 5
    assert found["keyword"].text == "greyhound, pottery kiln"
    (first, none, nothing), (second, phrases, covered) = keywords.asked
    assert (len(first), none, nothing) == (3, (), 0)
    assert (len(second), phrases, covered) == (2, ("greyhound", "pottery kiln"), 3)
    assert world.summarize.counts.calls >= 2
    assert found["keyword"].covered == 5


async def test_a_session_is_cut_where_there_is_no_more_room(make_world: MakeWorld) -> None:
    world = make_world(structure="memgas", settings=MemorySettings(summaries=SummarySettings(text_characters_max=300)))
    await world.put(*session(0, 12))
    await world.drain()
    text = (await units(world))["session"].text
    assert len(text) == 300
    assert text.endswith("…")
    await world.put(*session(12, 14))
    await world.drain()
    found = await units(world)
    assert found["session"].text == text
    assert found["session"].covered == 14


async def test_more_than_one_read_holds_is_taken_in_parts_and_never_from_the_summary(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's one child is its summary; that must not stand for the turns."""
    monkeypatch.setattr("memory.service.summarize.CONTRIBUTIONS_PER_READ", 3)
    world = make_world(structure="memgas")
    await world.put(*session(0, 8))
    found = await units(world)
    for unit in ("keyword", "summary", "session"):
        outcomes = [await world.summarize.refresh(TREE, found[unit].id)]
        while outcomes[-1] is JobOutcome.MORE:
            outcomes.append(await world.summarize.refresh(TREE, found[unit].id))
        assert outcomes == [JobOutcome.MORE, JobOutcome.MORE, JobOutcome.WRITTEN]
    text = (await units(world))["session"].text
    assert [line.partition(": ")[2] for line in text.split("\n")] == [*SAID, *SAID]


async def test_turns_without_keywords_leave_the_mean(make_world: MakeWorld) -> None:
    world = make_world(structure="memgas")
    await world.put(*session(0, 2, ["Hey!", "Wow, hey!"]))
    await world.drain()
    found = await units(world)
    assert found["keyword"].text == NO_KEYWORDS
    assert np.array_equal(np.asarray(found["keyword"].vector), np.asarray(found["session"].vector))
    await world.put(*session(2, 3))
    await world.drain()
    assert "kiln" in (await units(world))["keyword"].text
    assert NO_KEYWORDS not in (await units(world))["keyword"].text


async def test_an_unusable_answer_or_an_absent_embedder_keeps_what_is_there(make_world: MakeWorld) -> None:
    embedder = FakeEmbedder()
    keywords = CountingKeywords("a\x00b")
    world = make_world(structure="memgas", keywords=keywords, embedder=embedder)
    await world.put(*session(0, 2))
    before = (await units(world))["keyword"]
    with pytest.raises(SummarizerAnswerError, match="counting"):
        await world.summarize.refresh(TREE, before.id)
    keywords.phrases = ("greyhound",)
    embedder.faults.append(EmbedderFault.NAN)
    with pytest.raises(EmbedderAnswerError):
        await world.summarize.refresh(TREE, before.id)
    after = (await units(world))["keyword"]
    assert (after.text, after.pending, after.version) == (before.text, 2, before.version)


def test_phrases_are_joined_once_each_as_far_as_there_is_room() -> None:
    text = joined(["Lisbon", " pottery\nkiln ", "lisbon", "", "cats, dogs"], characters_max=100)
    assert text == "Lisbon, pottery kiln, cats dogs"
    assert parted(text) == ("Lisbon", "pottery kiln", "cats dogs")
    assert joined(["abc", "much too long", "de"], characters_max=7) == "abc, de"
    assert joined([" "], characters_max=7) == NO_KEYWORDS
    assert parted(NO_KEYWORDS) == parted("") == ()


def test_a_transcript_that_was_cut_stays_as_it_is() -> None:
    text = transcript("", ["one", "two", "three"], characters_max=9)
    assert text == "one\ntwo\n…"
    assert transcript(text, ["four"], characters_max=9) == text
    assert transcript("", ["one", "two"], characters_max=7) == "one\ntwo"

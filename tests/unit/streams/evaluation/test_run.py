"""What is measured: the baselines are what they are called, and a session counts however many turns of others come first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from memory.local import LocalMemory
from memory.model import NodeKind, TreeId
from memory.ports.index import IndexQuery
from memory.records import Turn
from streams.evaluation import baselines, run
from streams.evaluation.baselines import LEAVES
from streams.evaluation.dataset import Case, Dataset, Place
from streams.evaluation.timing import TimedEmbedder
from streams.setting_tables import TreeSettings
from streams.settings import Settings

TREE = "t"


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[tuple[LocalMemory, TimedEmbedder]]:
    memory, embedder, _ = await run.open_memory(Settings(embedder="hashing"), tmp_path)
    yield memory, embedder
    await memory.close()


def dataset(turns: Sequence[tuple[str, str, str]], *, text: str, sought: str) -> Dataset:
    """Turns as (id, session, text), and one question."""
    places = {(TREE, item): Place(turn=item, session=session) for item, session, _ in turns}
    case = Case(
        id="q",
        tree=TREE,
        text=text,
        category="all",
        turns=frozenset({sought}),
        sessions=frozenset({places[TREE, sought].session}),
        answer=None,
    )
    return Dataset(
        format="locomo",
        group="conversation",
        records=tuple(Turn(tree=TREE, id=item, text=said, conversation=session) for item, session, said in turns),
        places=places,
        cases=(case,),
        left_out=0,
        skipped=0,
    )


async def measured(opened: tuple[LocalMemory, TimedEmbedder], data: Dataset, strategy: str) -> run.Asked:
    memory, embedder = opened
    stop = asyncio.Event()
    await run.fill(memory, data, stop=stop, report=lambda *_: None)
    # Summaries take part in the frequencies that BM25 goes by: it only stands still once they do.
    assert await memory.fresh()
    return (await run.ask(memory, embedder, data, strategy, stop=stop, report=lambda *_: None)).asked[0]


async def test_bm25_is_the_order_of_the_index(opened: tuple[LocalMemory, TimedEmbedder]) -> None:
    texts = [f"{'harbour ' * (n % 7)} {'boat ' * (n % 5)} {'other words ' * (n % 11)} number {n}" for n in range(300)]
    data = dataset([(f"i{n}", f"s{n % 9}", text) for n, text in enumerate(texts)], text="harbour boat", sought="i0")
    await measured(opened, data, "bm25")
    memory, embedder = opened
    vector = (await embedder.embed(["harbour boat"], purpose="query"))[0]
    query = IndexQuery(vector=vector, terms="harbour boat", dense_k=0, lexical_k=20, scope=LEAVES)
    expected = await memory._parts.index.search(TreeId(TREE), query)
    best = sorted((round(found.lexical, 4) for found in expected.found), reverse=True)[:10]
    hits = await run._asker(memory, data, "bm25").ranked(TREE, "harbour boat")
    assert [round(hit.score, 4) for hit in hits] == best
    assert len(set(best)) > 5


async def test_both_scores_added_find_what_either_finds(opened: tuple[LocalMemory, TimedEmbedder]) -> None:
    # Between words that nobody repeats, one leaf is the nearest by far and another holds the rare word.
    turns = [(f"i{n}", "s", f"zinnia number {n} of many") for n in range(30)] + [("w", "s", "quoll")]
    data = dataset(turns, text="quoll zinnia number of many", sought="w")
    await measured(opened, data, "dense+bm25")
    memory, _ = opened
    text = data.cases[0].text
    alone = {name: await run._asker(memory, data, name).ranked(TREE, text) for name in ("dense", "bm25")}
    both = await run._asker(memory, data, "dense+bm25").ranked(TREE, text)
    assert alone["dense"][0].event_id != alone["bm25"][0].event_id
    assert {alone["dense"][0].event_id, alone["bm25"][0].event_id} <= {hit.event_id for hit in both[:5]}
    assert len({hit.id for hit in both}) == len(both)


@pytest.mark.parametrize("strategy", ["hybrid", "collapsed", "bm25", "dense+bm25"])
async def test_a_session_is_found_behind_many_turns_of_another(opened: tuple[LocalMemory, TimedEmbedder], strategy: str) -> None:
    crowd = [(f"c{n}", "crowd", f"violin violin violin {n}") for n in range(20)]
    data = dataset(
        [*crowd, ("x", "quiet", "a violin among very many other words about gardens and stones")], text="violin", sought="x"
    )
    asked = await measured(opened, data, strategy)
    assert asked.turn["recall@10"] == 0
    assert asked.session["recall@3"] == 1


async def test_contributions_are_leaves_below_summaries(opened: tuple[LocalMemory, TimedEmbedder]) -> None:
    memory, _ = opened
    turns = [(f"i{n}", "s", f"the same words again and again {n}") for n in range(12)]
    await measured(opened, dataset(turns, text="words", sought="i0"), "hybrid")
    stats = await memory._parts.store.stats(TreeId(TREE))
    expected = sum((depth - 1) * count for depth, count in stats.leaf_depths.items())
    assert expected > 0
    assert await run.contributions(memory, TREE) == expected


async def test_a_question_asked_of_no_tree_finds_nothing(opened: tuple[LocalMemory, TimedEmbedder]) -> None:
    memory, embedder = opened
    data = dataset([("i0", "s", "violin")], text="violin", sought="i0")
    lost = Case(id="q", tree="", text="?", category="all", turns=frozenset("x"), sessions=frozenset("y"), answer=None)
    await measured(opened, data, "hybrid")
    both = replace(data, cases=(lost, *data.cases))
    found = await run.ask(memory, embedder, both, "hybrid", stop=asyncio.Event(), report=lambda *_: None)
    assert [each.turn["recall@10"] for each in found.asked] == [0, 1]
    assert len(found.search_ms) == len(found.embed_ms) == 1
    assert 0 < found.embed_ms[0] < found.search_ms[0]


async def test_a_summary_counts_as_the_session_that_all_below_it_was_said_in(tmp_path: Path) -> None:
    settings = Settings(embedder="hashing", tree=TreeSettings(structure="memgas"))
    memory, embedder, _ = await run.open_memory(settings, tmp_path)
    async with memory:
        turns = [(f"{word}{n}", word, f"{word} {word} number {n}") for word in ("violin", "harbour") for n in range(3)]
        data = dataset(turns, text="violin", sought="violin1")
        pure = await measured_pure(memory, embedder, data)
        assert sorted(pure.values()) == ["harbour"] * 3 + ["violin"] * 3, "of either session its three units"
        for strategy in ("session-units", "summary-units", "keyword-units"):
            [asked] = (await run.ask(memory, embedder, data, strategy, stop=asyncio.Event(), report=lambda *_: None)).asked
            assert asked.turn == {}
            assert asked.unit == asked.session
            assert asked.session["recall@3"] == 1


async def test_units_of_one_granularity_are_known_however_wide_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_CHILDREN_MAX", 1)
    monkeypatch.setattr(baselines, "AMONG", 1)
    memory, embedder, _ = await run.open_memory(Settings(embedder="hashing", tree=TreeSettings(structure="memgas")), tmp_path)
    async with memory:
        turns = [(word, word, f"{word} and {word}") for word in ("violin", "harbour", "meadow", "kettle")]
        for _, word, _ in turns:
            data = dataset(turns, text=word, sought=word)
            for strategy in ("session-units", "summary-units", "keyword-units"):
                found = (await measured((memory, embedder), data, strategy)).session
                assert found["recall@3"] == 1, f"{word} by {strategy}: nearer units of others crowd none out"


async def test_an_article_is_found_behind_many_units_of_another(tmp_path: Path) -> None:
    crowd = [(f"c{n}", "crowd", f"violin violin violin {n}") for n in range(20)]
    turns = [*crowd, ("x", "quiet", "a violin among very many other words about gardens and stones")]
    data = dataset(turns, text="violin", sought="x")
    # Of no conversation, so that each is a session of MemGAS, as facts of one article are.
    alone = replace(data, records=tuple(Turn(tree=TREE, id=item, text=said) for item, _, said in turns))
    memory, embedder, _ = await run.open_memory(Settings(embedder="hashing", tree=TreeSettings(structure="memgas")), tmp_path)
    async with memory:
        for strategy in ("session-units", "summary-units"):
            assert (await measured((memory, embedder), alone, strategy)).session["recall@3"] == 1, strategy


async def measured_pure(memory: LocalMemory, embedder: TimedEmbedder, data: Dataset) -> dict[str, str]:
    await measured((memory, embedder), data, "router")
    return await run.pure_summaries(memory, data, TREE)


async def test_a_summary_of_several_sessions_counts_as_none(opened: tuple[LocalMemory, TimedEmbedder]) -> None:
    turns = [(f"i{n}", f"s{n % 2}", f"the same words again and again {n}") for n in range(6)]
    memory, embedder = opened
    data = dataset(turns, text="words", sought="i0")
    await measured((memory, embedder), data, "hybrid")
    mixed = {node.id for node in (await memory.tree(TREE)).children if node.kind is NodeKind.SUMMARY}
    assert mixed
    assert not mixed & set(await run.pure_summaries(memory, data, TREE))

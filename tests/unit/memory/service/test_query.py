"""Questions: bounds, filters, grouping, what a hit says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from memory.adapters.embedded.extractive import ExtractiveSummarizer
from memory.errors import EmbedderAnswerError, EmbedderError, QueryError, TreeMismatchError, TreeNotFoundError
from memory.model import NodeKind, TreeId
from memory.ports.index import Scope
from memory.ports.summarizer import Summary, SummaryRequest, estimate_tokens
from memory.records import Document
from memory.results import SearchAnswer
from tests.fakes.embedder import EmbedderFault, FakeEmbedder
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.world import TREE, World, turn, turns
from tests.unit.memory.service.conftest import MakeWorld

STRATEGIES = ("hybrid", "collapsed", "traversal")
START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


async def ask(world: World, text: str = "topic1 words", **options: object) -> SearchAnswer:
    return await world.query.search(TREE, text, **{"scope": Scope(), **options})  # type: ignore[arg-type]


async def chat(world: World, *, drained: bool = True) -> None:
    speakers = ("Ana", "Ben", "Cleo")
    await world.put(
        *(
            turn(
                number,
                f"topic{number % 5} subject{number % 5} number{number} word",
                conversation=f"c{number // 10}",
                speaker=speakers[number % 3],
                at=START + timedelta(days=number),
                metadata={"room": number % 2, "kept": number % 2 == 0, "deep": {"a": 1}},
            )
            for number in range(40)
        ),
        Document(
            tree=TREE,
            id="d1",
            text="A long paragraph about lighthouses. " * 120,
            title="Lighthouses",
            source="Courier",
            url="https://example.org/1",
            published_at=START,
        ),
    )
    if drained:
        await world.drain()


@pytest.mark.parametrize("k", [0, -1, 1_001, 10**12])
async def test_k_out_of_range_is_refused(world: World, k: int) -> None:
    await chat(world)
    with pytest.raises(QueryError, match="k must be between 1 and 1,000"):
        await ask(world, k=k)


@pytest.mark.parametrize("k", [1, 7, 1_000])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_at_most_k_hits_best_first_none_twice(world: World, k: int, strategy: str) -> None:
    await chat(world)
    hits = (await ask(world, k=k, strategy=strategy)).hits
    assert 1 <= len(hits) <= k
    assert len({hit.id for hit in hits}) == len(hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@pytest.mark.parametrize("text", ["", "  \n\t "])
async def test_an_empty_question_is_refused(world: World, text: str) -> None:
    await chat(world)
    with pytest.raises(QueryError, match="query: is empty"):
        await ask(world, text)


async def test_a_question_without_words_or_with_an_operator_in_it_is_just_text(world: World) -> None:
    await chat(world)
    for text in (
        "?!",
        "🌳",
        'NOT (a OR "b" AND *) NEAR/2 ^x -y : {z}',
        "'; DROP TABLE node; --",
        "a" * 8_192,
        "\u202eright to left",
    ):
        for strategy in STRATEGIES:
            assert (await ask(world, text, strategy=strategy)).strategy == strategy
    with pytest.raises(QueryError, match="8,193 characters"):
        await ask(world, "a" * 8_193)


async def test_an_unknown_strategy_is_refused_with_those_there_are(world: World) -> None:
    await chat(world)
    with pytest.raises(QueryError, match="'best' is not known; there is hybrid, collapsed, bm25, traversal"):
        await ask(world, strategy="best")


async def test_a_tree_that_is_not_there_or_of_another_model(make_world: MakeWorld) -> None:
    world = make_world()
    with pytest.raises(TreeNotFoundError, match="missing"):
        await world.query.search(TreeId("missing"), "x", scope=Scope())
    await world.put(turn(1))
    with pytest.raises(TreeMismatchError, match="BANYAN_EMBEDDER"):
        await ask(make_world(embedder=FakeEmbedder(name="fake:other")))


@pytest.mark.parametrize("fault", [EmbedderFault.NAN, EmbedderFault.FEW, EmbedderFault.DIMENSION, EmbedderFault.ZERO])
async def test_an_embedder_that_fails_a_question_is_named(make_world: MakeWorld, fault: EmbedderFault) -> None:
    embedder = FakeEmbedder()
    world = make_world(embedder=embedder)
    await world.put(turn(1))
    embedder.faults.append(fault)
    with pytest.raises(EmbedderAnswerError, match="fake:words"):
        await ask(world)
    embedder.faults.append(EmbedderFault.HANG)
    with pytest.raises(EmbedderError, match="did not answer"):
        await ask(world)
    assert (await ask(world)).hits


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_an_empty_tree_has_no_hits(world: World, strategy: str) -> None:
    await world.ingest.ensure_tree(TREE)
    answer = await ask(world, strategy=strategy)
    assert (answer.hits, answer.seq) == ((), 0)


async def test_a_leaf_says_where_it_comes_from(world: World) -> None:
    await chat(world)
    hit = (await ask(world, "number7", strategy="hybrid")).hits[0]
    assert (hit.event_id, hit.kind, hit.chunk, hit.descendants, hit.pending) == ("e7", NodeKind.LEAF, 0, 0, 0)
    assert hit.sources == ("e7",)
    assert hit.source is not None
    assert (hit.source.speaker, hit.source.conversation, hit.source.at) == ("Ben", "c0", START + timedelta(days=7))
    assert hit.metadata == {"room": 1, "kept": False, "deep": {"a": 1}}
    assert len(hit.path) == hit.depth - 1
    texts = await world.texts()
    assert all(texts[crumb.id] == crumb.text for crumb in hit.path)
    above = [crumb.id for crumb in hit.path]
    nodes = await world.store.nodes(TREE, above)
    assert [nodes[name].depth for name in above] == list(range(1, len(above) + 1)), "uppermost first"


async def test_a_chunk_says_which_document(world: World) -> None:
    await chat(world)
    hits = [hit for hit in (await ask(world, "lighthouses paragraph", k=50)).hits if hit.event_id == "d1"]
    assert sorted(hit.chunk for hit in hits) == list(range(len(hits)))
    assert hits[0].source is not None
    assert (hits[0].source.title, hits[0].source.url) == ("Lighthouses", "https://example.org/1")


async def test_a_summary_says_what_it_was_made_of_and_what_it_does_not_cover_yet(world: World) -> None:
    await chat(world, drained=False)
    hits = (await ask(world, "topic1 subject1", k=200, strategy="collapsed")).hits
    summaries = [hit for hit in hits if hit.kind is NodeKind.SUMMARY]
    assert summaries
    assert all(hit.provisional and hit.pending == hit.descendants and hit.event_id is None for hit in summaries)
    for hit in summaries:
        assert len(hit.sources) >= 1
        assert len(set(hit.sources)) == len(hit.sources) <= hit.descendants
    await world.drain()
    hits = (await ask(world, "topic1 subject1", k=200, strategy="collapsed")).hits
    assert not [hit for hit in hits if hit.pending or hit.provisional]


async def test_a_hit_says_what_is_pending_after_one_more(world: World) -> None:
    await chat(world)
    await world.put(turn(99, "topic1 subject1 number1 word"))
    hits = (await ask(world, "topic1 subject1", k=200, strategy="collapsed")).hits
    pending = {hit.id: hit.pending for hit in hits if hit.kind is NodeKind.SUMMARY}
    stored = await world.store.nodes(TREE, list(pending))
    assert pending == {name: node.pending for name, node in stored.items()}
    assert {0, 1} <= set(pending.values())


@pytest.mark.parametrize("strategy", ["hybrid", "collapsed"])
@pytest.mark.parametrize(
    ("scope", "fits"),
    [
        (Scope(speaker="Ana"), lambda number: number % 3 == 0),
        (Scope(conversation="c2"), lambda number: 20 <= number < 30),
        (Scope(metadata={"room": "1"}), lambda number: number % 2 == 1),
        (Scope(metadata={"kept": "true"}), lambda number: number % 2 == 0),
        (Scope(since=START + timedelta(days=30)), lambda number: number >= 30),
        (Scope(until=START + timedelta(days=3)), lambda number: number < 3),
        (Scope(speaker="Ben", conversation="c1", metadata={"room": "0"}), lambda number: number in {10, 16}),
        (Scope(speaker="Nobody"), lambda _: False),
    ],
)
async def test_filters_hold_and_still_fill_k(world: World, strategy: str, scope: Scope, fits: object) -> None:
    await chat(world)
    expected = {f"e{number}" for number in range(40) if fits(number)}  # type: ignore[operator]
    found = [hit.event_id for hit in (await ask(world, k=100, strategy=strategy, scope=scope)).hits]
    assert set(found) - {"d1"} <= expected
    if strategy == "hybrid":  # the other leaves out what is too unlike the question
        assert set(found) - {"d1"} == expected


async def test_a_strategy_that_cannot_filter_says_which_can(world: World) -> None:
    await chat(world)
    with pytest.raises(QueryError, match="use hybrid or collapsed"):
        await ask(world, strategy="traversal", scope=Scope(speaker="Ana"))


async def test_grouping_gives_one_hit_a_conversation(world: World) -> None:
    await chat(world)
    hits = (await ask(world, "topic1 subject1", k=10, group="conversation")).hits
    conversations = [hit.source.conversation for hit in hits if hit.source]
    assert sorted(filter(None, conversations)) == ["c0", "c1", "c2", "c3"]
    assert len(conversations) == len(hits) == len(set(conversations))
    assert len((await ask(world, "topic1 subject1", k=2, group="conversation")).hits) == 2


async def test_grouping_gives_one_hit_a_document(world: World) -> None:
    await chat(world)
    hits = (await ask(world, "lighthouses paragraph", k=10, group="document")).hits
    assert len({hit.event_id for hit in hits}) == len(hits)
    assert hits[0].event_id == "d1"


async def test_explain_shows_parts_and_trace(world: World) -> None:
    await chat(world)
    for strategy in STRATEGIES:
        answer = await ask(world, strategy=strategy, explain=True)
        assert answer.trace
        assert all(hit.parts for hit in answer.hits)
        assert not (await ask(world, strategy=strategy)).trace


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("strategy", [*STRATEGIES, "bm25"])
async def test_what_a_summary_repeats_is_answered_once_and_the_next_hit_fills_up(
    make_world: MakeWorld, strategy: str, drained: bool
) -> None:
    world = make_world(summarizer=ExtractiveSummarizer())
    await world.put(*(turn(number, f"Topic{number // 2} began in Porto.", speaker="Ana") for number in range(40)))
    await world.drain()
    await world.forget(*(f"e{number}" for number in range(0, 40, 2)))
    if drained:
        await world.drain()
    k = 12
    found = (await ask(world, "Topic3 began in Porto", k=k, strategy=strategy)).hits
    by_id = {hit.id: hit for hit in found}
    on_paths = [(hit, by_id[crumb.id]) for hit in found for crumb in hit.path if crumb.id in by_id]
    assert not [(lower.text, upper.text) for lower, upper in on_paths if upper.text in {lower.text, f"Ana: {lower.text}"}]
    assert len(found) == k
    text = (await world.query.context(TREE, "Topic3 began in Porto", tokens=2_000, strategy=strategy, scope=Scope())).text
    assert text.count("Topic3 began in Porto.") == 1


@pytest.mark.parametrize("tokens", [1, 5, 40, 400, 100_000])
async def test_context_keeps_its_budget_and_is_in_time_order(world: World, tokens: int) -> None:
    await chat(world)
    context = await world.query.context(TREE, "topic1 subject1", tokens=tokens, scope=Scope())
    assert context.tokens <= tokens
    assert estimate_tokens(context.text) <= tokens + len(context.hits) or not context.text
    times = [hit.source.at for hit in context.hits if hit.source and hit.source.at]
    assert times == sorted(times)
    assert bool(context.hits) == bool(context.text)


async def test_a_summary_stands_in_the_context_with_all_its_lines(make_world: MakeWorld) -> None:
    class InLines(FakeSummarizer):
        async def summarize(self, request: SummaryRequest) -> Summary:
            del request
            return Summary(text="topic1 began in May.\n\nIt ended in June.", calls=1)

    world = make_world(summarizer=InLines())
    await chat(world)
    summaries = Scope(kinds=frozenset({NodeKind.SUMMARY}))
    context = await world.query.context(TREE, "topic1 subject1", tokens=100, scope=summaries)
    assert context.text == "topic1 began in May.\n\nIt ended in June."


@pytest.mark.parametrize("tokens", [0, -5, 10**9])
async def test_a_context_of_no_size_is_refused(world: World, tokens: int) -> None:
    await world.put(*turns(range(3)))
    with pytest.raises(QueryError, match="tokens must be between"):
        await world.query.context(TREE, "x", tokens=tokens, scope=Scope())


async def test_a_question_between_commits_sees_all_that_was_acknowledged(world: World) -> None:
    for number in range(12):
        await world.put(turn(number, f"unique{number} word"))
        for strategy in STRATEGIES:
            answer = await ask(world, f"unique{number}", k=1, strategy=strategy)
            assert answer.seq == number + 1
            assert strategy == "traversal" or answer.hits[0].event_id == f"e{number}"


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (datetime(2026, 5, 8, 13, 6, 59, tzinfo=UTC), "[2026-05-08 13:06] Ana: "),
        (datetime(2026, 5, 8, tzinfo=UTC), "[2026-05-08] Ana: "),
        (datetime(1, 1, 1, tzinfo=UTC), "[0001-01-01] Ana: "),
        (None, "Ana: "),
    ],
)
async def test_a_passage_says_who_and_when(world: World, at: datetime | None, shown: str) -> None:
    await world.put(turn(1, "words about a boat", speaker="Ana", at=at))
    assert (await world.query.context(TREE, "boat", tokens=100, scope=Scope())).text.startswith(shown)

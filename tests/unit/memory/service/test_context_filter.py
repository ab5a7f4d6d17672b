"""A context is filtered where there is a filter, unless its question says otherwise."""

from __future__ import annotations

import pytest

from memory.errors import QueryError
from memory.model import NodeKind, TreeId
from memory.ports.index import Scope
from memory.records import Turn
from memory.service.query import Context, Query
from tests.fakes.context_filter import FakeContextFilter
from tests.fakes.world import World

TREE = TreeId("t")
WHOLE = "the harbour is near\nthe house is old"
LEAVES = Scope(kinds=frozenset({NodeKind.LEAF}))


def querying(world: World, context_filter: FakeContextFilter | None) -> Query:
    return Query(
        store=world.store,
        index=world.index,
        indexing=world.indexing,
        views=world.views,
        embedder=world.embedder,
        settings=world.settings.retrieval,
        context_filter=context_filter,
    )


async def asked(world: World, context_filter: FakeContextFilter | None, wanted: bool | None) -> Context:
    await world.put(*(Turn(tree=TREE, id=f"e{number}", text=text) for number, text in enumerate(WHOLE.splitlines())))
    return await querying(world, context_filter).context(
        TREE, "the harbour is", tokens=100, strategy="collapsed", scope=LEAVES, context_filter=wanted
    )


@pytest.mark.parametrize("wanted", [None, True])
async def test_what_does_not_matter_is_left_out_where_there_is_a_filter(world: World, wanted: bool | None) -> None:
    context = await asked(world, FakeContextFilter("harbour"), wanted)
    assert (context.text, context.filtered, context.note) == ("the harbour is near", True, "")


async def test_a_question_can_do_without_the_filter_which_is_not_asked_then(world: World) -> None:
    words = FakeContextFilter("harbour")
    context = await asked(world, words, wanted=False)
    assert (sorted(context.text.splitlines()), context.filtered, words.asked) == (WHOLE.splitlines(), False, [])


@pytest.mark.parametrize("wanted", [None, False])
async def test_without_a_filter_all_stays(world: World, wanted: bool | None) -> None:
    context = await asked(world, None, wanted)
    assert (sorted(context.text.splitlines()), context.filtered, context.note) == (WHOLE.splitlines(), False, "")


async def test_a_filter_that_is_not_there_cannot_be_insisted_on(world: World) -> None:
    with pytest.raises(QueryError, match="BANYAN_CONTEXT_FILTER"):
        await asked(world, None, wanted=True)


async def test_where_the_filter_is_away_all_stays_and_the_answer_says_why(world: World) -> None:
    context = await asked(world, FakeContextFilter("harbour", away="gone fishing"), wanted=True)
    assert (sorted(context.text.splitlines()), context.filtered, context.note) == (WHOLE.splitlines(), False, "gone fishing")

"""The index in RediSearch, beyond its contract: on a server with the search module, where there is one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis

from memory.adapters.embedded.index.lexical import words
from memory.adapters.redis import Link, RedisSettings
from memory.adapters.redis.search import RediSearchNodeIndex, SearchSettings, search_module
from memory.adapters.redis.search.documents import value_code
from memory.errors import StoreUnavailableError
from memory.model import TreeId
from memory.ports.index import IndexAnswer, IndexEntry, IndexQuery, Scope
from memory.retrieval.text import terms
from memory.service.indexing import Indexing
from memory.service.reindexing import Outgrown, Reindexing
from tests.conftest import NOT_RUN
from tests.contract.node_indexes import SEARCH_URL, search_url
from tests.fakes.index_entries import OTHER, TREE, D, about, clustered, fill, leaf, nodes
from tests.fakes.plain_index import PlainIndex, unit
from tests.fakes.world import TREE as WORLD_TREE
from tests.fakes.world import World, turns


@pytest.fixture
def url(pytestconfig: pytest.Config) -> str:
    given = search_url()
    if given is None:
        reason = f"{SEARCH_URL} names no server with the search module"
        pytestconfig.stash.setdefault(NOT_RUN, {})["RediSearch (beyond the contract)"] = reason
        pytest.skip(reason)
    return given


class Opening:
    """Opens indexes below one prefix."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"test-{secrets.token_hex(6)}"
        self.opened: list[RediSearchNodeIndex] = []

    async def __call__(self, tokenize: Callable[[str], list[str]] = words, **settings: int) -> RediSearchNodeIndex:
        link = await Link.open(RedisSettings(url=self.url, prefix=self.prefix))
        index = RediSearchNodeIndex(link, tokenize=tokenize, settings=SearchSettings(**settings), owns_link=True)
        self.opened.append(index)
        return index


@pytest.fixture
async def opening(url: str) -> AsyncIterator[Opening]:
    made = Opening(url)
    yield made
    await (await made()).wipe()
    for one in made.opened:
        await one.close()


@pytest.fixture
async def server(url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(url, protocol=2)
    yield client
    await client.aclose()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "store.db")
    yield made
    await made.close()


async def eventually(call: Callable[[], Awaitable[IndexAnswer]]) -> IndexAnswer:
    """The answer once the index is whole again."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await call()
            except StoreUnavailableError:
                await asyncio.sleep(0.05)


async def test_what_the_server_can_do_is_known(url: str) -> None:
    link = await Link.open(RedisSettings(url=url, prefix="test-module"))
    found = await search_module(link)
    await link.close()
    assert found is not None
    assert found.usable
    assert str(found).startswith("search ")


async def test_a_tree_that_grows_is_moved_to_an_index_of_its_own_and_answers_all_the_while(opening: Opening, world: World) -> None:
    index = await opening(terms, own_from=60)
    store = world.store
    indexing = Indexing(store=store, index=index)
    growing = Outgrown(Reindexing(store=store, index=index))
    indexing.on_outgrown(growing)
    for start in range(0, 40, 10):
        await world.put(*turns(range(start, start + 10)))
        await indexing.catch_up(WORLD_TREE)
    vector = unit(np.ones((await store.tree(WORLD_TREE)).model.dimension))
    least = 0
    for start in range(40, 400, 10):
        await world.put(*turns(range(start, start + 10)))
        seq = await indexing.catch_up(WORLD_TREE)
        answer = await index.search(WORLD_TREE, IndexQuery(vector=vector, terms="", dense_k=10_000))
        assert answer.seq >= seq
        assert len(answer.found) >= least
        least = len(answer.found)
    async with asyncio.timeout(120):
        while await index.outgrown(WORLD_TREE):  # noqa: ASYNC110  # a task's doing
            await asyncio.sleep(0.02)
    await growing.close()
    assert (await Reindexing(store=store, index=index).verify(WORLD_TREE)).level
    assert least == (await store.stats(WORLD_TREE)).nodes - 1


def prose(count: int, seed: int) -> list[IndexEntry]:
    """Texts whose words are as common and as rare as those of a language."""
    random = np.random.default_rng(seed)
    ranks = np.minimum(random.zipf(1.3, size=(count, 60)), 5000)
    return [
        leaf(seed * 100_000 + number, text=" ".join(f"w{rank}" for rank in row[: random.integers(4, 60)]))
        for number, row in enumerate(ranks)
    ]


QUESTIONS = ["w7 w31 w112", "w2 w5 w60 w900", "w14 w40 w41", "w3", "w250 w90 w11 w2", "w1 w1500 w33"]


async def test_scores_are_the_same_in_a_shared_index_and_in_one_of_its_own(opening: Opening) -> None:
    entries = prose(400, 1)
    shared, own = await opening(), await opening(own_from=1)
    await fill(shared, prose(400, 2), batch=400, tree=OTHER)
    await fill(shared, entries, batch=400)
    await fill(own, entries, batch=400, tree=TreeId("own"))
    for text in QUESTIONS:
        query = about(text, entries[3].vector, dense_k=15, lexical_k=15)
        one, other = await shared.search(TREE, query), await own.search(TreeId("own"), query)
        scores = [{each.node: (each.dense, each.lexical) for each in answer.found} for answer in (one, other)]
        both = scores[0].keys() & scores[1].keys()
        assert len(both) >= 0.95 * len(scores[0])
        for node in both:
            assert scores[0][node] == pytest.approx(scores[1][node], rel=1e-6)


async def test_what_is_found_by_words_is_the_best_also_among_many_other_trees(opening: Opening) -> None:
    index = await opening()
    entries = prose(1500, 1)
    await fill(index, entries, batch=500)
    for number in range(3):
        await fill(index, prose(500, 2 + number), batch=500, tree=TreeId(f"other-{number}"))
    plain = PlainIndex()
    plain.update(entries)
    hits = wanted = 0
    for text in QUESTIONS:
        query = about(text, dense_k=0, lexical_k=100)
        scores = plain.lexical(query)
        least = max(sorted(scores.values())[-100], 1e-3)
        found = (await index.search(TREE, query)).found
        hits += sum(scores[each.node] >= least - 1e-4 for each in found)
        wanted += sum(score >= least for score in scores.values())
        assert len(found) == min(100, sum(score > 0 for score in scores.values()))
    assert hits / wanted >= 0.98


SPECIAL = [*map(chr, range(128)), "} | @tree:{*", "*) | (@tree:{2}", "@words:(*)", "a* | -b", "=>[KNN 9 @vector $v]", "$vector"]


async def test_no_text_of_a_question_leaves_its_tree(opening: Opening) -> None:
    index = await opening()
    await fill(index, [leaf(1, text="copper", speaker="Ana")])
    await fill(index, [leaf(2, text="secret", speaker="Ben", metadata={"topic": "secret"})], tree=OTHER)
    for text in SPECIAL:
        for value in (text, f"x{text}y"):
            scope = Scope(speaker=value, conversation=value, source=value, metadata={"topic": value, value: value})
            assert (await index.search(TREE, about(f"{value} secret", scope=scope))).found == []
            found = nodes((await index.search(TREE, about(f"{value} secret"))).found)
            assert found == {"n1"}, f"{value!r}"


async def test_an_index_that_was_dropped_is_made_again_from_what_is_there(opening: Opening, server: Redis) -> None:
    index, other = await opening(), await opening()
    await fill(index, clustered(300))
    query = about("copper river", dense_k=300)
    before = nodes((await index.search(TREE, query)).found)
    await server.execute_command("FT.DROPINDEX", f"{opening.prefix}:search:shared:{D}")  # type: ignore[no-untyped-call]
    first, second = await asyncio.gather(*(eventually(partial(each.search, TREE, query)) for each in (index, other)))
    assert nodes(first.found) == nodes(second.found) == before


async def test_what_a_tree_has_left_is_cleared_away(opening: Opening, server: Redis) -> None:
    index = await opening(own_from=100)
    await fill(index, clustered(200), batch=200)
    await fill(index, clustered(60), batch=60, tree=OTHER)
    assert len(await server.keys(f"{opening.prefix}:1:search:own:*")) == 200
    await index.drop(TREE)
    left: list[Any] = await server.keys(f"{opening.prefix}:1:search:*")
    assert not [key for key in left if b":own:" in key]
    assert len([key for key in left if key.startswith(f"{opening.prefix}:1:search:shared:{D}:".encode())]) == 60
    await index.drop(OTHER)
    left = await server.keys(f"{opening.prefix}:1:search:*")
    names = {bytes(key).decode() for key in left if isinstance(key, bytes)}
    assert {name.partition(":1:search:")[2] for name in names} == {"generations", f"made:{opening.prefix}:search:shared:{D}"}


@pytest.mark.parametrize("own_from", [1, 1_000])
async def test_what_is_removed_is_gone_from_every_key(opening: Opening, server: Redis, own_from: int) -> None:
    index = await opening(own_from=own_from)
    gone = leaf(
        500, text="zwiebelmuster river", sequence="c:gone", speaker="Zwiebelina", conversation="gone", metadata={"about": "attic"}
    )
    await fill(index, [*clustered(20), gone], batch=21)
    secret = [b"zwiebelmuster", b"Zwiebelina", b"n500", b"e500", value_code("c:gone").encode(), gone.vector.astype("<f2").tobytes()]

    async def left() -> bytes:
        keys: list[Any] = await server.keys(f"{opening.prefix}:1:search:*")
        return b"".join([part for key in keys for part in (key, *map(_said, await _value(server, key)))])

    before = await left()
    assert all(one in before for one in secret)
    assert await index.update(TREE, after=await index.covered(TREE), seq=100, upserts=[], removes=[gone.node])
    after = await left()
    assert [one for one in secret if one in after] == []
    assert b"river" in after, "what stays is looked for in the same way"
    answer = await index.search(TREE, about("zwiebelmuster", vector=gone.vector))
    assert gone.node not in nodes(answer.found)


async def _value(server: Redis, key: bytes) -> list[Any]:
    match await server.type(key):
        case b"hash":
            return [one for pair in (await server.hgetall(key)).items() for one in pair]
        case b"zset":
            return list(await server.zrange(key, 0, -1))
        case _:
            return [await server.get(key)]


def _said(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes) else str(value).encode()


async def test_a_large_update_is_written_in_parts_and_covers_its_commit_at_the_end(opening: Opening) -> None:
    index = await opening(update_nodes_max=10)
    entries = clustered(95)
    assert await index.update(TREE, after=0, seq=7, upserts=entries)
    assert (await index.covered(TREE), await index.size(TREE)) == (7, 95)
    assert await index.update(TREE, after=7, seq=8, upserts=entries[:30], removes=[entry.node for entry in entries[50:]])
    assert (await index.covered(TREE), await index.size(TREE)) == (8, 50)


async def test_of_two_processes_one_has_the_turn(opening: Opening) -> None:
    one, other = await opening(), await opening()
    assert await one.take_turn(TREE, seconds=30)
    assert not await other.take_turn(TREE, seconds=30)
    await other.end_turn(TREE)
    assert not await other.take_turn(TREE, seconds=30), "nobody gives another's turn back"
    await one.end_turn(TREE)
    assert await other.take_turn(TREE, seconds=0.05)
    async with asyncio.timeout(60):
        while not await one.take_turn(TREE, seconds=1):  # noqa: ASYNC110  # the server's clock
            await asyncio.sleep(0.02)

"""What the server of tools makes of calls that go wrong, without any transport."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from mcp import Client
from structlog.testing import capture_logs

from memory.errors import NodeNotFoundError, SettingError, StoreDamagedError, StoreUnavailableError, TreeNotFoundError
from memory.model import EventId, NodeId, NodeKind, TreeId
from memory.results import EventResult, EventStatus, Hit, SearchAnswer, Source, TreeNode
from streams.mcp.arguments import HIT_CHARACTERS_MAX, TEXT_CHARACTERS_MAX
from streams.mcp.run import Wanted, _bounds, asks_for_keys
from streams.mcp.server import Bounds, Toolbox
from streams.mcp.tools import _outline
from streams.mcp.web import allowed_names
from streams.setting_tables import ServeSettings

if TYPE_CHECKING:
    from streams.mcp.tools import Memory


class FakeMemory:
    """Answers with one long hit; waits, or fails, as it is told."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.status = EventStatus.ACCEPTED
        self.taken: list[Any] = []

    async def search(self, _tree: str, _query: str, **_options: object) -> SearchAnswer:
        self.asked.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        source = Source(
            event_id=EventId("e"), chunk=0, conversation=None, speaker="Ana", source=None, title=None, url=None, at=None
        )
        hit = Hit(
            id=NodeId("n"),
            kind=NodeKind.LEAF,
            score=1.0,
            text="x" * (HIT_CHARACTERS_MAX + 1),
            depth=1,
            event_id=EventId("e"),
            chunk=0,
            source=source,
            sources=(EventId("e"),),
            path=(),
            descendants=0,
            pending=0,
            provisional=False,
        )
        return SearchAnswer(hits=(hit,), seq=1, strategy="hybrid")

    async def ingest(self, records: list[Any]) -> list[EventResult]:
        self.taken += records
        return [EventResult(tree=TreeId("t"), id=records[0].id, status=self.status, seq=1, reason="text: is too long")]


@pytest.fixture
def memory() -> FakeMemory:
    return FakeMemory()


def toolbox(memory: FakeMemory, **bounds: Any) -> Toolbox:
    return Toolbox(cast("Memory", memory), Bounds(**bounds))


async def said(box: Toolbox, tool: str, **given: object) -> str:
    """The error that a call ends with."""
    async with Client(box.server("1")) as client:
        result = await client.call_tool(tool, given)
    assert result.is_error
    return str(result.content[0].text)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("tool", "given", "field"),
    [
        ("remember", {"text": "x" * (TEXT_CHARACTERS_MAX + 1)}, "text"),
        ("remember", {"text": ""}, "text"),
        ("remember", {"text": " \n"}, "text"),
        ("remember", {"text": "x", "at": "yesterday"}, "at"),
        ("remember", {"text": "x", "id": "i" * 257}, "id"),
        ("remember", {"text": "x", "metadata": {str(number): 1 for number in range(60)}}, "metadata"),
        ("remember", {"text": "x", "metadata": {"deep": [1]}}, "metadata.deep"),
        ("forget", {"ids": []}, "ids"),
        ("forget", {"ids": ["i" * 257]}, "ids"),
        ("forget", {"ids": ["a\x00"]}, "event"),
        ("forget", {"ids": [str(number) for number in range(51)]}, "ids"),
        ("recall", {"query": "x" * 5_000}, "query"),
        ("recall", {"query": "x", "k": 51}, "k"),
        ("recall", {"query": "x", "k": -1}, "k"),
        ("recall", {"query": "x", "since": "soon"}, "since"),
        ("recall", {"query": "x", "tree": "../etc"}, "tree"),
        ("recall", {"query": "x", "tree": "a\n"}, "tree"),
        ("context", {"query": "x", "tokens": 10**9}, "tokens"),
        ("overview", {"depth": 9}, "depth"),
        ("trees", {"after": "x" * 129}, "after"),
    ],
)
async def test_an_argument_that_cannot_be_is_named(memory: FakeMemory, tool: str, given: dict[str, object], field: str) -> None:
    named = given if tool == "trees" else {"tree": "t", **given}
    assert f"{field}" in (await said(toolbox(memory), tool, **named)).split(": ")[0]
    assert memory.taken == []


async def test_what_is_away_is_told_with_its_address_only_to_whoever_started_the_process(memory: FakeMemory) -> None:
    memory.error = StoreUnavailableError("redis://secret:6379 cannot be reached")
    assert "redis://secret" in await said(toolbox(memory), "recall", tree="t", query="x")
    box = toolbox(memory, by_request=True)
    assert box._told("recall", memory.error) == (
        "something that the memory needs is away (StoreUnavailableError); nothing is lost, call again in a moment"
    )


async def test_an_error_that_is_not_the_call_s_own_is_told_only_to_whoever_started_the_process(memory: FakeMemory) -> None:
    memory.error = StoreDamagedError("/home/ana/secret.sqlite is no store")
    assert "/home/ana" in await said(toolbox(memory), "recall", tree="t", query="x")
    box = toolbox(memory, by_request=True)
    with capture_logs() as logged:
        told = box._told("recall", memory.error)
    assert "ana" not in told
    assert "the server's log" in told
    assert [(each["tool"], each["reason"]) for each in logged] == [("recall", "/home/ana/secret.sqlite is no store")]
    told = box._told("overview", NodeNotFoundError("tree 't' has no node 'n'"))
    assert told.startswith("tree 't' has no node 'n'; `overview` without `node`")


async def test_only_tools_that_are_offered_are_advised(memory: FakeMemory) -> None:
    gone = TreeNotFoundError()
    assert "`trees` lists those that there are, and `remember` makes one" in toolbox(memory)._told("recall", gone)
    assert "remember" not in toolbox(memory, read_only=True)._told("recall", gone)
    assert toolbox(memory, read_only=True, tree="t")._told("recall", gone) == "there is no such memory yet"


async def test_a_call_without_a_request_is_nobody_s_where_callers_have_keys(memory: FakeMemory) -> None:
    assert "nobody" in await said(toolbox(memory, by_request=True), "recall", tree="t", query="x")


async def test_an_error_nobody_thought_of_shows_nothing(memory: FakeMemory) -> None:
    memory.error = ZeroDivisionError("the secret")
    assert "secret" not in await said(toolbox(memory), "recall", tree="t", query="x")


async def test_a_call_has_its_time_and_calls_their_number(memory: FakeMemory) -> None:
    memory.gate.clear()
    assert "within 0.01 s" in await said(toolbox(memory, seconds=0.01), "recall", tree="t", query="x")
    memory.asked.clear()
    box = toolbox(memory, at_once=1)
    async with Client(box.server("1")) as client:
        first = asyncio.create_task(client.call_tool("recall", {"tree": "t", "query": "x"}))
        await memory.asked.wait()
        refused = await client.call_tool("recall", {"tree": "t", "query": "x"})
        assert refused.is_error
        waiting = asyncio.create_task(box.idle(timedelta(seconds=60)))
        await asyncio.sleep(0)
        assert not waiting.done()
        memory.gate.set()
        assert not (await first).is_error
        await waiting


async def test_long_texts_are_cut_and_say_so(memory: FakeMemory) -> None:
    async with Client(toolbox(memory).server("1")) as client:
        result = await client.call_tool("recall", {"tree": "t", "query": "x"})
    assert result.structured_content is not None
    [hit] = result.structured_content["hits"]
    assert (len(hit["text"]), hit["cut"]) == (HIT_CHARACTERS_MAX, True)


async def test_what_cannot_be_kept_is_an_error_with_its_reason(memory: FakeMemory) -> None:
    memory.status = EventStatus.REJECTED
    assert "text: is too long" in await said(toolbox(memory), "remember", tree="t", text="x")
    memory.status = EventStatus.CONFLICT
    assert "'mine' holds another text" in await said(toolbox(memory), "remember", tree="t", text="x", id="mine")


async def test_the_id_comes_from_what_is_said_and_not_from_when(memory: FakeMemory) -> None:
    async with Client(toolbox(memory).server("1")) as client:
        for given in ({"speaker": "Ana"}, {"speaker": "Ana", "at": "2026-05-08"}, {"speaker": "Ben"}, {"title": "A"}):
            await client.call_tool("remember", {"tree": "t", "text": "x", **given})
    first, again, ben, document = memory.taken
    assert first.id == again.id
    assert len({first.id, ben.id, document.id}) == 3
    assert (document.KIND, first.KIND) == ("document", "turn")


def test_an_outline_is_indented_by_depth_and_says_what_is_hidden() -> None:
    def node(name: str, kind: NodeKind, *children: TreeNode, hidden: int = 0) -> TreeNode:
        return TreeNode(
            id=NodeId(name),
            kind=kind,
            depth=0,
            text=f"about {name}",
            descendants=3,
            pending=0,
            provisional=False,
            event_id=EventId(f"e-{name}") if kind is NodeKind.LEAF else None,
            speaker=None,
            at=None,
            children=children,
            hidden=hidden,
        )

    leaf = node("l", NodeKind.LEAF)
    topic = node("s", NodeKind.SUMMARY, leaf, hidden=2)
    lines = list(_outline(node("root", NodeKind.ROOT, topic, leaf, hidden=4), 0))
    assert lines == ["- s (3): about s", "  - [e-l] about l", "  … 2 more", "- [e-l] about l", "… 4 more"]
    assert list(_outline(topic, 0)) == lines[:3]


def test_names_by_which_it_may_be_called() -> None:
    local = ["127.0.0.1", "localhost", "[::1]"]
    assert allowed_names("127.0.0.1", []) == local
    assert allowed_names("10.0.0.5", ["memory.example.org"]) == [*local, "10.0.0.5", "memory.example.org"]
    assert allowed_names("fd00::5", []) == [*local, "[fd00::5]"]
    assert allowed_names("0.0.0.0", ["memory.example.org"]) == [*local, "memory.example.org"]


@pytest.mark.parametrize(
    ("host", "names", "keyed"),
    [
        ("127.0.0.1", (), False),
        ("::1", ("localhost", "[::1]"), False),
        ("127.0.0.1", ("memory.example.org",), True),
        ("0.0.0.0", ("memory.example.org",), True),
        ("10.0.0.5", (), True),
    ],
)
def test_a_key_is_asked_for_wherever_others_can_reach_it_behind_a_proxy_too(host: str, names: tuple[str, ...], keyed: bool) -> None:
    assert asks_for_keys(Wanted(transport="http", host=host, names=names)) is keyed
    assert asks_for_keys(Wanted(transport="http", host=host, names=names, keys=True))
    if keyed:
        with pytest.raises(SettingError, match="BANYAN_AUTH"):
            asks_for_keys(Wanted(transport="http", host=host, names=names, keys=False))
    else:
        assert not asks_for_keys(Wanted(transport="http", host=host, names=names, keys=False))


def test_one_key_cannot_take_the_calls_of_all_others() -> None:
    serve = ServeSettings(concurrency=4, connections_max=1_000)
    assert _bounds(Wanted(transport="http"), serve).at_once == 1_000
    assert _bounds(Wanted(transport="stdio"), serve).at_once == 4

"""Judged answers against a server that misbehaves on command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from memory.adapters.openai.client import Endpoint
from streams.evaluation.chat import Chat, Replies, Reply
from streams.evaluation.judge import Exam, Marks, estimate, examine, verdict
from tests.fakes.openai_server import FakeOpenAIServer


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as running:
        yield running


@asynccontextmanager
async def chatting(server: FakeOpenAIServer, folder: Path, waits: list[float] | None = None) -> AsyncIterator[Chat]:
    async def sleep(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    endpoint = Endpoint(base_url=server.base_url, timeout_s=60.0, attempts=3, wait_max_s=60)
    chat = Chat(model="judge", endpoint=endpoint, replies=Replies(folder), sleep=sleep)
    try:
        yield chat
    finally:
        await chat.close()


def exams(count: int) -> list[Exam]:
    return [Exam(id=str(n), category="a", query=f"question {n}?", context=f"found {n}", answer=f"right {n}") for n in range(count)]


async def run(chat: Chat, given: list[Exam], *, concurrency: int = 1) -> Marks:
    return await examine(given, chat, concurrency=concurrency, stop=asyncio.Event(), report=lambda *_: None)


def said(server: FakeOpenAIServer, *replies: str) -> None:
    for reply in replies:
        server.fail_next("content" if reply else "empty-content", message=reply)


def asked(server: FakeOpenAIServer) -> list[str]:
    return [request.body["messages"][-1]["content"] for request in server.requests]


async def test_prompts_carry_question_context_and_answers(server: FakeOpenAIServer, tmp_path: Path) -> None:
    said(server, "my {answer}", "1")
    async with chatting(server, tmp_path) as chat:
        marks = await run(chat, exams(1))
    answering, judging = asked(server)
    assert answering.startswith("Write a high-quality short answer for the given question using only the provided search results")
    assert "[ Question ]\nquestion 0?" in answering
    assert "[ Search Results ]\nfound 0" in answering
    assert "right 0" not in answering
    assert "- Output ’0’ if it does not." in judging
    assert "[ Ground-Truth Answer ]\nright 0" in judging
    assert "[ Predicted Answer ]\nmy {answer}" in judging
    assert marks.counts()["correct"] == 1


async def test_accuracy_is_among_those_with_a_verdict(server: FakeOpenAIServer, tmp_path: Path) -> None:
    said(server, "a", "1", "b", "0", "c", "I would say 1", "", "d", "’1’")
    async with chatting(server, tmp_path) as chat:
        marks = await run(chat, exams(5))
    assert marks.counts() == {"correct": 2, "wrong": 1, "unparsable": 1, "unanswered": 1}
    assert marks.accuracy() == pytest.approx(2 / 3)
    assert marks.accuracy("no such category") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", "correct"), ("0.", "wrong"), ("'1'", "correct"), ("10", "unparsable"), ("yes", "unparsable"), ("1 or 0", "unparsable")],
)
def test_only_a_bare_digit_is_a_verdict(text: str, expected: str) -> None:
    assert verdict(Reply(text=text, tokens_in=1, tokens_out=1)) == expected


async def test_a_second_run_asks_nothing(server: FakeOpenAIServer, tmp_path: Path) -> None:
    async with chatting(server, tmp_path) as chat:
        assert estimate(exams(3), chat).calls == 6
        first = await run(chat, exams(3), concurrency=3)
    requests = len(server.requests)
    async with chatting(server, tmp_path) as chat:
        assert estimate(exams(3), chat).calls == 0
        second = await run(chat, exams(3), concurrency=3)
    assert (requests, len(server.requests)) == (6, 6)
    assert second.judged == first.judged
    assert (second.calls, second.known) == (0, 6)


async def test_a_run_that_failed_goes_on_where_it_stopped(server: FakeOpenAIServer, tmp_path: Path) -> None:
    async with chatting(server, tmp_path) as chat:
        said(server, "a", "1", "b")
        server.fail_next("status", times=3, status=503)
        first = await run(chat, exams(3))
        assert len(first.judged) == 1
        assert "503" in first.failure
        before = len(server.requests)
        said(server, "0", "c", "1")
        second = await run(chat, exams(3))
    assert len(server.requests) - before == 3
    assert second.failure == ""
    assert second.counts()["correct"] == 2


async def test_retry_after_is_waited_for(server: FakeOpenAIServer, tmp_path: Path) -> None:
    waits: list[float] = []
    server.fail_next("status", status=429, retry_after="7")
    said(server, "a", "1")
    async with chatting(server, tmp_path, waits) as chat:
        marks = await run(chat, exams(1))
    [waited] = waits
    assert 7.0 <= waited <= 7.0 * 1.25
    assert marks.counts()["correct"] == 1


async def test_a_prompt_that_is_refused_does_not_stop_the_others(server: FakeOpenAIServer, tmp_path: Path) -> None:
    server.fail_next("status", status=400, message="too long")
    said(server, "b", "1")
    async with chatting(server, tmp_path) as chat:
        marks = await run(chat, exams(2))
    assert marks.failure == ""
    assert [each.verdict for each in marks.judged] == ["unanswered", "correct"]


async def test_no_more_questions_at_once_than_allowed(server: FakeOpenAIServer, tmp_path: Path) -> None:
    async with chatting(server, tmp_path) as chat:
        marks = await run(chat, exams(20), concurrency=3)
    assert len(marks.judged) == 20
    assert server.in_flight_max <= 3


async def test_stopping_leaves_the_rest(server: FakeOpenAIServer, tmp_path: Path) -> None:
    stop = asyncio.Event()
    async with chatting(server, tmp_path) as chat:
        marks = await examine(exams(10), chat, concurrency=1, stop=stop, report=lambda *_: stop.set())
    assert len(marks.judged) == 1


def test_a_damaged_reply_is_asked_for_again(tmp_path: Path) -> None:
    replies = Replies(tmp_path)
    replies.put("m", "p", Reply(text="x", tokens_in=1, tokens_out=1))
    assert replies.get("m", "p") == Reply(text="x", tokens_in=1, tokens_out=1)
    assert replies.get("other", "p") is None
    next(tmp_path.rglob("*.json")).write_bytes(b'{"text":')
    assert replies.get("m", "p") is None

"""MemGAS' prompt for the filter, against a server that speaks the API and misbehaves on command."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest

from memory.adapters.openai.client import Endpoint
from memory.adapters.openai.context_filter import OpenAIContextFilter, own_words
from memory.errors import FilterError, SettingError
from tests.fakes.openai_server import FakeOpenAIServer, Kind

PASSAGES = ("[2026-05-08] Ana: I moved to Porto in May.", "[2026-05-09] Ben: The tram {x} was late again.")


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as fake:
        yield fake


async def no_sleep(_: float) -> None:
    return None


def made(server: FakeOpenAIServer) -> OpenAIContextFilter:
    return OpenAIContextFilter(
        model="m",
        endpoint=Endpoint(api_key="sk-secret", base_url=server.base_url, timeout_s=60.0),
        sleep=no_sleep,
        today=lambda: date(2026, 6, 1),
    )


async def test_the_model_is_asked_as_the_paper_asks(server: FakeOpenAIServer) -> None:
    server.fail_next("content", message=PASSAGES[0])
    model = made(server)
    assert await model.keep("Where does Ana live?", PASSAGES) == PASSAGES[0]
    prompt = server.requests[0].body["messages"][-1]["content"]
    assert prompt.startswith("You are an intelligent dialog bot. You will be shown History Dialogs")
    assert prompt.endswith(
        f"History Dialogs: {PASSAGES[0]}\n{PASSAGES[1]}\n Question Date: 2026-06-01\n Question: Where does Ana live?\n Answer:"
    )
    await model.close()


async def test_an_answer_that_is_not_of_the_memory_is_refused(server: FakeOpenAIServer) -> None:
    server.fail_next("content", message="Ana lives in Porto, a lovely city on the river Douro.")
    model = made(server)
    with pytest.raises(FilterError, match="not of the memory"):
        await model.keep("Where does Ana live?", PASSAGES)
    await model.close()


@pytest.mark.parametrize(
    "kind", ["status", "disconnect", "refusal", "length", "content-filter", "blank-content", "huge", "no-choices"]
)
async def test_whatever_is_wrong_is_one_error(server: FakeOpenAIServer, kind: Kind) -> None:
    server.fail_next(kind, times=2)
    model = made(server)
    with pytest.raises(FilterError):
        await model.keep("Where?", PASSAGES)
    await model.close()


async def test_a_request_that_is_never_taken_is_that_error_too_and_a_refused_key_is_not(server: FakeOpenAIServer) -> None:
    model = made(server)
    server.fail_next("status", status=400, message="too long")
    with pytest.raises(FilterError):
        await model.keep("Where?", PASSAGES)
    server.fail_next("status", status=401, message="bad key sk-secret")
    with pytest.raises(SettingError) as caught:
        await model.keep("Where?", PASSAGES)
    assert "sk-secret" not in str(caught.value) + repr(model)
    await model.close()


def test_words_are_compared_whatever_their_case() -> None:
    assert own_words("ana MOVED", PASSAGES[0]) == 1
    assert own_words("Ana left", PASSAGES[0]) == 0.5
    assert own_words("...", PASSAGES[0]) == 0

"""MemGAS' prompt for keywords, against a server that speaks the API and misbehaves on command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memory.adapters.openai.client import Endpoint
from memory.adapters.openai.keywords import PHRASES_MAX, OpenAIKeywords, read
from memory.errors import SettingError, SummarizerAnswerError, SummarizerError
from tests.fakes.openai_server import FakeOpenAIServer, Kind

TEXTS = ("Ana (2026-05-08): I moved to Porto.", "Ben (2026-05-08): Near the harbour {x}?")


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as fake:
        yield fake


async def no_sleep(_: float) -> None:
    return None


def extractor(server: FakeOpenAIServer) -> OpenAIKeywords:
    return OpenAIKeywords(
        model="m", endpoint=Endpoint(api_key="sk-secret", base_url=server.base_url, timeout_s=60.0), sleep=no_sleep
    )


async def test_the_model_is_asked_as_the_paper_asks(server: FakeOpenAIServer) -> None:
    server.fail_next("content", message="Porto; harbour; moving house")
    made = extractor(server)
    found = await made.keywords(TEXTS)
    assert found.phrases == ("Porto", "harbour", "moving house")
    assert found.calls == 1
    assert found.tokens_in > 0
    [request] = server.requests
    prompt = request.body["messages"][-1]["content"]
    assert prompt.startswith(
        "Below is an user-AI assistant dialogue memory. Please extract the most relevant keywords, separated by semicolon."
    )
    assert all(text in prompt for text in TEXTS)
    assert "Keywords of the" not in prompt
    await made.close()


async def test_what_was_found_before_is_told_where_a_session_goes_on(server: FakeOpenAIServer) -> None:
    server.fail_next("content", message="Porto; tram")
    made = extractor(server)
    await made.keywords(TEXTS, existing=("Lisbon", "tram"), covered=12)
    assert (
        "Keywords of the 12 turns before these, to be kept where they still matter: Lisbon; tram"
        in (server.requests[0].body["messages"][-1]["content"])
    )
    await made.close()


@pytest.mark.parametrize("kind", ["disconnect", "malformed", "not-json", "empty-object", "status"])
async def test_a_fault_is_tried_again(server: FakeOpenAIServer, kind: Kind) -> None:
    server.fail_next(kind)
    server.fail_next("content", message="Porto")
    made = extractor(server)
    assert (await made.keywords(TEXTS)).phrases == ("Porto",)
    await made.close()


async def test_a_server_that_stays_away_is_told_apart_from_answers_that_are_none(server: FakeOpenAIServer) -> None:
    made = extractor(server)
    server.fail_next("status", status=503, times=3)
    with pytest.raises(SummarizerError):
        await made.keywords(TEXTS)
    for kind in ("empty-content", "refusal", "length"):
        server.fail_next(kind, times=2)
        with pytest.raises(SummarizerAnswerError, match="no usable keywords, twice"):
            await made.keywords(TEXTS)
    server.fail_next("content", message="; - ;", times=4)
    with pytest.raises(SummarizerAnswerError):
        await made.keywords(TEXTS)
    await made.close()


async def test_no_secret_is_shown(server: FakeOpenAIServer) -> None:
    made = extractor(server)
    assert "sk-secret" not in repr(made)
    server.fail_next("status", status=401, message="bad key sk-secret")
    with pytest.raises(SettingError) as caught:
        await made.keywords(TEXTS)
    assert "sk-secret" not in str(caught.value)
    await made.close()


def test_a_model_is_needed() -> None:
    with pytest.raises(SettingError, match="BANYAN_KEYWORDS"):
        OpenAIKeywords(model="", endpoint=Endpoint(api_key="k"))


@pytest.mark.parametrize(
    ("answer", "phrases"),
    [
        ("Keywords: Porto; porto; \u201charbour\u201d.", ("Porto", "harbour")),
        ("1. Porto\n2) tram 28\n- fado", ("Porto", "tram 28", "fado")),
        ("Porto, tram", ("Porto", "tram")),
        ("Porto, Portugal; tram", ("Porto Portugal", "tram")),
        ("2026 budget; 401k", ("2026 budget", "401k")),
        (f"{'long ' * 30}; tram", ("tram",)),
        ("", ()),
    ],
)
def test_phrases_are_read_as_models_write_them(answer: str, phrases: tuple[str, ...]) -> None:
    assert read(answer) == phrases


def test_there_are_never_more_than_asked_for() -> None:
    assert len(read("; ".join(f"word{n}" for n in range(100)))) == PHRASES_MAX

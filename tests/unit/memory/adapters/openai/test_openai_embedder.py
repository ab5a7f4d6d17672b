from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest

from memory.adapters.openai.embedder import OpenAIEmbedder, RequestLimits
from memory.errors import EmbedderAnswerError, EmbedderError, SettingError
from tests.fakes.openai_server import FakeOpenAIServer, Kind, fake_vector

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer(dimension=8) as running:
        yield running


_opened: list[OpenAIEmbedder] = []


@pytest.fixture(autouse=True)
async def close_all() -> AsyncIterator[None]:
    yield
    while _opened:
        await _opened.pop().close()


class Sleeper:
    """Remembers how long it was asked to sleep, and does not."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def embedder(server: FakeOpenAIServer, **others: Any) -> OpenAIEmbedder:
    arguments: dict[str, Any] = {"model": "fake", "api_key": KEY, "base_url": server.base_url, "dimensions": 8, "sleep": Sleeper()}
    made = OpenAIEmbedder(**(arguments | others))
    _opened.append(made)
    return made


def expected(*texts: str, dimension: int = 8) -> np.ndarray[Any, Any]:
    vectors = np.array([fake_vector(text, dimension) for text in texts], np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


async def test_texts_are_sent_in_batches_and_come_back_in_order(server: FakeOpenAIServer) -> None:
    made = embedder(server, limits=RequestLimits(texts_max=3))
    texts = [f"text {k}" for k in range(10)]
    assert np.allclose(await made.embed(texts), expected(*texts), atol=1e-6)
    assert sorted(len(request.body["input"]) for request in server.requests) == [1, 3, 3, 3]
    assert {request.body["model"] for request in server.requests} == {"fake"}
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}


async def test_the_index_field_decides_the_order(server: FakeOpenAIServer) -> None:
    server.fail_next("shuffled")
    assert np.allclose(await embedder(server).embed(["a", "b", "c"]), expected("a", "b", "c"), atol=1e-6)


async def test_a_request_is_bounded_in_bytes(server: FakeOpenAIServer) -> None:
    made = embedder(server, limits=RequestLimits(bytes_max=100))
    texts = ["é" * 30 + str(k) for k in range(5)]
    await made.embed(texts)
    assert [len(request.body["input"]) for request in server.requests] == [1] * 5


async def test_requests_in_flight_are_bounded_over_all_callers(server: FakeOpenAIServer) -> None:
    made = embedder(server, limits=RequestLimits(texts_max=1, concurrent=2))
    await asyncio.gather(*(made.embed([f"{caller} {k}" for k in range(4)]) for caller in range(3)))
    assert server.in_flight_max <= 2
    assert len(server.requests) == 12


async def test_dimensions_are_asked_for_and_named(server: FakeOpenAIServer) -> None:
    made = embedder(server, model="text-embedding-3-small", dimensions=4)
    assert np.allclose(await made.embed(["a"]), expected("a", dimension=4), atol=1e-6)
    assert server.requests[0].body["dimensions"] == 4
    assert (made.model.name, made.model.dimension) == ("openai:text-embedding-3-small", 4)
    assert embedder(server, model="text-embedding-3-large", dimensions=None).model.dimension == 3072


async def test_an_unknown_model_is_asked_for_its_length(server: FakeOpenAIServer) -> None:
    made = await OpenAIEmbedder.open(model="unknown", api_key=None, base_url=server.base_url)
    _opened.append(made)
    assert made.model.dimension == 8
    await made.embed(["a"])
    assert all("dimensions" not in request.body for request in server.requests)
    with pytest.raises(SettingError, match="open it with"):
        OpenAIEmbedder(model="unknown", api_key=None, base_url=server.base_url)


async def test_a_long_text_is_the_mean_of_its_windows(server: FakeOpenAIServer) -> None:
    made = embedder(server, limits=RequestLimits(window_tokens=4))
    (vector,) = await made.embed(["aaaaaaaabbbbbbbb"])
    mean = expected("aaaaaaaa", "bbbbbbbb").sum(axis=0)
    assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)


async def test_a_text_that_the_server_finds_too_long_is_cut_smaller() -> None:
    with FakeOpenAIServer(dimension=8, tokens_max=10) as server:
        made = embedder(server, limits=RequestLimits(window_tokens=20))
        vectors = await made.embed(["a b c d e f g h i j k l m n o", "short"])
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        assert len(server.requests) == 2


async def test_retry_after_is_waited_for(server: FakeOpenAIServer) -> None:
    server.fail_next("status", status=429, retry_after="3")
    server.fail_next("status", status=503)
    sleeper = Sleeper()
    assert np.allclose(await embedder(server, sleep=sleeper).embed(["a"]), expected("a"), atol=1e-6)
    asked, own = sleeper.slept
    assert (3.0 <= asked <= 3.75, 1.0 <= own <= 1.25) == (True, True)


async def test_a_long_retry_after_is_passed_on_at_once(server: FakeOpenAIServer) -> None:
    server.fail_next("status", times=2, status=429, retry_after="120", message="slow down")
    sleeper = Sleeper()
    with pytest.raises(EmbedderError, match=r"openai:fake at http://127\.0\.0\.1.*429.*slow down") as caught:
        await embedder(server, sleep=sleeper).embed(["a"])
    assert caught.value.retry_after == 120
    assert (sleeper.slept, len(server.requests)) == ([], 1)


async def test_retry_after_may_be_a_date(server: FakeOpenAIServer) -> None:
    server.fail_next("status", status=429, retry_after=format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True))
    with pytest.raises(EmbedderError) as caught:
        await embedder(server).embed(["a"])
    assert caught.value.retry_after == pytest.approx(3600, abs=60)


@pytest.mark.parametrize("retry_after", ["soon", "", "nan", "inf", "-5"])
async def test_a_senseless_retry_after_does_no_harm(server: FakeOpenAIServer, retry_after: str) -> None:
    server.fail_next("status", times=3, status=429, retry_after=retry_after)
    with pytest.raises(EmbedderError) as caught:
        await embedder(server).embed(["a"])
    assert caught.value.retry_after is None or 0 <= caught.value.retry_after < 1e9


@pytest.mark.parametrize("status", [402, 408, 409, 429, 500, 502, 503, 529])
async def test_outages_are_tried_again_a_bounded_number_of_times(server: FakeOpenAIServer, status: int) -> None:
    server.fail_next("status", times=9, status=status)
    with pytest.raises(EmbedderError, match=str(status)):
        await embedder(server).embed(["a"])
    assert len(server.requests) == 3


@pytest.mark.parametrize(("status", "hint"), [(401, "OPENAI_API_KEY"), (403, "OPENAI_API_KEY"), (404, "OPENAI_BASE_URL")])
async def test_a_wrong_setting_is_not_waited_for_and_says_what_to_check(server: FakeOpenAIServer, status: int, hint: str) -> None:
    server.fail_next("status", status=status)
    with pytest.raises(SettingError, match=hint):
        await embedder(server).embed(["a"])
    assert len(server.requests) == 1


async def test_a_request_that_is_refused_for_good_is_not_repeated(server: FakeOpenAIServer) -> None:
    server.fail_next("status", status=400, message="input is invalid")
    with pytest.raises(EmbedderAnswerError, match="input is invalid"):
        await embedder(server).embed(["a"])
    assert len(server.requests) == 1


@pytest.mark.real_time
@pytest.mark.parametrize("kind", ["hang", "drip"])
async def test_a_server_that_does_not_finish_is_left(server: FakeOpenAIServer, kind: Kind) -> None:
    server.fail_next(kind, times=2)
    with pytest.raises(EmbedderError, match="no answer within"):
        await embedder(server, timeout=0.15, attempts=2).embed(["a"])
    assert len(server.requests) == 2


async def test_a_lost_connection_is_tried_again(server: FakeOpenAIServer) -> None:
    server.fail_next("disconnect")
    assert np.allclose(await embedder(server).embed(["a"]), expected("a"), atol=1e-6)


async def test_nobody_listening_is_an_outage() -> None:
    with FakeOpenAIServer() as server:
        url = server.base_url
    made = OpenAIEmbedder(model="fake", api_key=KEY, base_url=url, dimensions=8, sleep=Sleeper())
    _opened.append(made)
    with pytest.raises(EmbedderError, match="cannot be reached"):
        await made.embed(["a"])


@pytest.mark.parametrize(
    "kind",
    ["nan", "null", "zero", "wrong-dimension", "too-few", "too-many", "duplicate-index", "malformed", "not-json", "empty-object"],
)
async def test_an_answer_that_is_no_embedding_is_refused_and_the_next_one_taken(server: FakeOpenAIServer, kind: Kind) -> None:
    made = embedder(server)
    server.fail_next(kind)
    with pytest.raises(EmbedderAnswerError, match="openai:fake"):
        await made.embed(["a", "b"])
    assert np.allclose(await made.embed(["a", "b"]), expected("a", "b"), atol=1e-6)


@pytest.mark.parametrize("status", [400, 401, 429])
async def test_the_key_is_never_shown(server: FakeOpenAIServer, status: int) -> None:
    made = embedder(server, attempts=1)
    server.fail_next("status", status=status, message=f"Incorrect API key provided: {KEY}")
    with pytest.raises((EmbedderError, EmbedderAnswerError, SettingError)) as caught:
        await made.embed(["a"])
    shown = "".join(traceback.format_exception(caught.value)) + repr(made) + repr(made._endpoint) + str(caught.value)
    assert "Incorrect API key" in shown
    assert KEY not in shown


async def test_credentials_in_the_address_are_never_shown(server: FakeOpenAIServer) -> None:
    made = embedder(server, base_url=server.base_url.replace("http://", "http://ana:pass%40word@"), attempts=1)
    server.fail_next("status", status=500)
    with pytest.raises(EmbedderError) as caught:
        await made.embed(["a"])
    assert "pass" not in str(caught.value) + repr(made)


async def test_one_failed_batch_fails_the_call_and_stops_the_others(server: FakeOpenAIServer) -> None:
    made = embedder(server, limits=RequestLimits(texts_max=1, concurrent=1))
    server.fail_next("nan")
    with pytest.raises(EmbedderAnswerError):
        await made.embed([f"text {k}" for k in range(50)])
    assert len(server.requests) < 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"api_key": None, "base_url": None}, "OPENAI_API_KEY"),
        ({"base_url": "localhost:8000"}, "OPENAI_BASE_URL"),
        ({"base_url": "http://"}, "OPENAI_BASE_URL"),
        ({"dimensions": 0}, "1 to 8192"),
        ({"dimensions": 9000}, "1 to 8192"),
        ({"timeout": 0.0}, "time-out"),
        ({"attempts": 0}, "attempts"),
    ],
)
def test_settings_that_cannot_work_are_refused(arguments: dict[str, Any], words: str) -> None:
    good: dict[str, Any] = {"model": "fake", "api_key": KEY, "base_url": "http://localhost:1/v1", "dimensions": 8}
    with pytest.raises(SettingError, match=words):
        OpenAIEmbedder(**(good | arguments))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(SettingError, match=r"openai.*pip install 'banyan-memory\[openai\]'"):
        OpenAIEmbedder(model="text-embedding-3-small", api_key=KEY)


async def test_calibration_is_known_for_some_and_given_for_others(server: FakeOpenAIServer) -> None:
    assert embedder(server, model="text-embedding-3-small").model.unrelated_cosine == 0
    assert embedder(server, model="multilingual-e5-small-q4").model.unrelated_cosine == pytest.approx(0.79)
    assert embedder(server, unrelated_cosine=0.3).model.unrelated_cosine == 0.3

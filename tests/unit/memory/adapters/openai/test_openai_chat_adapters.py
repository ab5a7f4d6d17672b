"""What is the same of everything that asks a chat model: how often it is asked, whose fault a failure is, how it is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memory.adapters.openai.client import Endpoint
from memory.adapters.openai.context_filter import OpenAIContextFilter
from memory.adapters.openai.keywords import OpenAIKeywords
from memory.adapters.openai.labels import OpenAILabels
from memory.adapters.openai.navigator import OpenAINavigator
from memory.errors import BanyanError, FilterError, LabelError, NavigatorError, PermanentError, SummarizerError
from memory.ports.navigator import Situation
from tests.fakes.openai_server import FakeOpenAIServer

SITUATION = Situation(question="q", layer=0, node=0, layers=1, nodes=1, text="t", similarity=0.0, walk=(), moves_left=1)
Adapter = OpenAILabels | OpenAINavigator | OpenAIContextFilter | OpenAIKeywords


async def ask(adapter: Adapter) -> object:
    match adapter:
        case OpenAILabels():
            return await adapter.labels(["a text"], known=[])
        case OpenAINavigator():
            return await adapter.choose(SITUATION)
        case OpenAIContextFilter():
            return await adapter.keep("a question", ["a text"])
        case OpenAIKeywords():
            return await adapter.keywords(["a text"])


WAITED_FOR: list[tuple[type[Adapter], type[BanyanError]]] = [
    (OpenAILabels, LabelError),
    (OpenAINavigator, NavigatorError),
    (OpenAIContextFilter, FilterError),
]


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as made:
        yield made


def made(adapter: type[Adapter], server: FakeOpenAIServer, waits: list[float]) -> Adapter:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    endpoint = Endpoint(api_key="sk-secret", base_url=server.base_url, timeout_s=60.0, attempts=4, wait_max_s=60.0)
    return adapter(model="m", endpoint=endpoint, sleep=sleep)


@pytest.mark.parametrize(("adapter", "error"), WAITED_FOR)
async def test_what_somebody_waits_for_is_asked_twice(
    server: FakeOpenAIServer, adapter: type[Adapter], error: type[BanyanError]
) -> None:
    waits: list[float] = []
    asks = made(adapter, server, waits)
    server.fail_next("status", status=503, times=4)
    with pytest.raises(error, match="503"):
        await ask(asks)
    assert len(server.requests) == 2
    assert len(waits) == 1
    await asks.close()


async def test_keywords_are_made_beside_others_work_and_asked_for_as_often_as_configured(server: FakeOpenAIServer) -> None:
    asks = made(OpenAIKeywords, server, [])
    server.fail_next("status", status=503, times=4)
    with pytest.raises(SummarizerError, match="503"):
        await ask(asks)
    assert len(server.requests) == 4
    await asks.close()


@pytest.mark.parametrize(("adapter", "error"), [*WAITED_FOR, (OpenAIKeywords, PermanentError)])
async def test_a_request_that_is_refused_for_ever_is_not_repeated(
    server: FakeOpenAIServer, adapter: type[Adapter], error: type[BanyanError]
) -> None:
    asks = made(adapter, server, [])
    server.fail_next("status", status=422, message="too long")
    with pytest.raises(error, match="too long"):
        await ask(asks)
    assert len(server.requests) == 1
    await asks.close()


@pytest.mark.parametrize("adapter", [OpenAILabels, OpenAINavigator, OpenAIContextFilter, OpenAIKeywords])
async def test_it_shows_its_model_and_where_it_is_but_no_key(server: FakeOpenAIServer, adapter: type[Adapter]) -> None:
    asks = made(adapter, server, [])
    assert asks.name == "openai:m"
    assert repr(asks) == f"{adapter.__name__}(openai:m at {server.base_url})"
    await asks.close()

"""The process of a worker: what becomes of it when it cannot start."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError

from streams import run
from streams.app import Role
from streams.broker import BrokerUnavailableError
from streams.runtime import Runtime
from streams.settings import Settings


async def test_a_broker_that_goes_away_again_while_the_group_is_joined_is_an_outage_not_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start() -> None:
        raise KafkaConnectionError("Unable to bootstrap")

    async def nothing(*_: object) -> Any:
        return None

    monkeypatch.setattr(run, "make_app", lambda *_: SimpleNamespace(start=start))
    observer = SimpleNamespace(begin=lambda _: None, end=nothing)
    with pytest.raises(BrokerUnavailableError, match=r"cannot be reached.*BANYAN_BROKER"):
        await run._work(Role.INGEST, Runtime(Settings(), nothing), cast(Any, observer), asyncio.Event())

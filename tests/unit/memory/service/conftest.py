"""Services over the real tables, in virtual time: waits cost nothing, and a deadlock is an error at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.virtual_time import VirtualLoop
from tests.fakes.world import World

MakeWorld = Callable[..., World]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """All tests of this folder run in virtual time."""
    del config, item
    return {"virtual": VirtualLoop}


@pytest.fixture
async def make_world(tmp_path: Path) -> AsyncIterator[MakeWorld]:
    """Makes the services of a process; with the same name, or none, on the same file."""
    made: list[World] = []

    def make(name: str = "store", **options: Any) -> World:
        made.append(World(tmp_path / f"{name}.db", **options))
        return made[-1]

    yield make
    for world in made:
        await world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()

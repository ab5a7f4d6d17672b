"""The adapters that the contract suites run over. Another family is one more line in `FAMILIES`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.adapters.embedded.leases import InProcessLeases
from memory.adapters.embedded.store import SqliteTreeStore
from memory.ports.jobs import SummaryJobs
from memory.ports.leases import PathLeases
from memory.ports.store import TreeStore
from tests.fakes.clock import FakeClock

Elapse = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family's adapters of the ports that share state."""

    store: TreeStore
    leases: PathLeases
    jobs: SummaryJobs
    elapse: Elapse
    """Lets that many seconds pass, and everything that can run in them run."""


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Family]:
    clock = FakeClock()
    leases = InProcessLeases(clock)
    store = await SqliteTreeStore.open(folder / "banyan.db", leases=leases)
    yield Family(store=store, leases=leases, jobs=InProcessSummaryJobs(clock), elapse=clock.advance)
    await store.close()


FAMILIES: dict[str, Callable[[Path], AbstractAsyncContextManager[Family]]] = {
    "embedded": embedded,
}


@pytest.fixture(params=FAMILIES)
async def family(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Family]:
    async with FAMILIES[request.param](tmp_path) as made:
        yield made


@pytest.fixture
def store(family: Family) -> TreeStore:
    return family.store


@pytest.fixture
def leases(family: Family) -> PathLeases:
    return family.leases


@pytest.fixture
def jobs(family: Family) -> SummaryJobs:
    return family.jobs


@pytest.fixture
def elapse(family: Family) -> Elapse:
    return family.elapse

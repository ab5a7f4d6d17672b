"""The adapters that the contract suites run over. Another family is one more line in `FAMILIES`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from memory.adapters.embedded.budget import InProcessBudget
from memory.adapters.embedded.claims import InProcessClaims
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.adapters.embedded.leases import InProcessLeases
from memory.adapters.embedded.store import SqliteTreeStore
from memory.adapters.redis import Link, RedisCallBudget, RedisNodeClaims, RedisPathLeases, RedisSettings, RedisTreeStore
from memory.ports.budget import CallBudget, Rate
from memory.ports.claims import NodeClaims
from memory.ports.index import NodeIndex
from memory.ports.jobs import SummaryJobs
from memory.ports.leases import PathLeases
from memory.ports.store import TreeStore
from tests.conftest import NOT_RUN
from tests.contract.node_indexes import ON_SEARCH, OPENERS, SEARCH_URL, SHARED, Opener, available, clear_away, search_url
from tests.fakes.clock import FakeClock
from tests.fakes.scaled_claims import ScaledClaims
from tests.fakes.scaled_leases import ScaledLeases
from tests.servers.redis import RedisServer

Elapse = Callable[[float], Awaitable[None]]

SECOND = 0.25
"""Real seconds that a second of the suites takes on a server, whose clock runs by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family's adapters of the ports that share state."""

    store: TreeStore
    leases: PathLeases
    claims: NodeClaims
    budget: Callable[[str, Rate], CallBudget]
    """A provider's, by its name."""
    jobs: SummaryJobs | None
    """None where the family has no queue of its own."""
    elapse: Elapse
    """Lets that many seconds pass, and everything that can run in them run."""


@asynccontextmanager
async def embedded(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Family]:  # noqa: ARG001
    clock = FakeClock()
    leases = InProcessLeases(clock)
    store = await SqliteTreeStore.open(folder / "banyan.db", leases=leases)
    budgets: dict[str, InProcessBudget] = {}
    yield Family(
        store=store,
        leases=leases,
        claims=InProcessClaims(clock),
        budget=lambda provider, rate: budgets.setdefault(provider, InProcessBudget(rate, clock)),
        jobs=InProcessSummaryJobs(clock),
        elapse=clock.advance,
    )
    await store.close()


@asynccontextmanager
async def on_redis(url: str) -> AsyncIterator[Family]:
    link = await Link.open(RedisSettings(url=url, prefix=f"test-{secrets.token_hex(6)}"))
    yield Family(
        store=RedisTreeStore(link),
        leases=ScaledLeases(RedisPathLeases(link), SECOND),
        claims=ScaledClaims(RedisNodeClaims(link), SECOND),
        budget=lambda provider, rate: RedisCallBudget(link, provider, rate),
        jobs=None,
        elapse=lambda seconds: asyncio.sleep(seconds * SECOND),
    )
    await link.close()


@asynccontextmanager
async def single_redis(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Family]:  # noqa: ARG001
    async with on_redis(request.getfixturevalue("redis_url")) as family:
        yield family


@asynccontextmanager
async def redis_cluster_of_three(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Family]:  # noqa: ARG001
    nodes: list[RedisServer] = request.getfixturevalue("redis_cluster")
    async with on_redis(f"redis+cluster://127.0.0.1:{nodes[0].port}") as family:
        yield family


FAMILIES: dict[str, Callable[[pytest.FixtureRequest, Path], AbstractAsyncContextManager[Family]]] = {
    "embedded": embedded,
    "redis": single_redis,
    "redis-cluster": redis_cluster_of_three,
}
WITH_JOBS = ("embedded",)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every family that has the ports that a test asks for."""
    if "family" in metafunc.fixturenames:
        metafunc.parametrize("family", WITH_JOBS if "jobs" in metafunc.fixturenames else FAMILIES, indirect=True)
    for fixture, names in (("index", tuple(OPENERS)), ("opener", SHARED)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, available(names), indirect=True)
            if search_url() is None:
                metafunc.config.stash.setdefault(NOT_RUN, {})["RediSearch (the node index's contract)"] = (
                    f"{SEARCH_URL} names no server with the search module"
                )


@pytest.fixture
async def family(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Family]:
    async with FAMILIES[request.param](request, tmp_path) as made:
        yield made


@pytest.fixture
def store(family: Family) -> TreeStore:
    return family.store


@pytest.fixture
def leases(family: Family) -> PathLeases:
    return family.leases


@pytest.fixture
def jobs(family: Family) -> SummaryJobs:
    assert family.jobs is not None
    return family.jobs


@pytest.fixture
def elapse(family: Family) -> Elapse:
    return family.elapse


@pytest.fixture
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NodeIndex]:
    opened = await OPENERS[request.param](tmp_path)
    yield opened
    if request.param in ON_SEARCH:
        await clear_away(opened)
    await opened.close()


@pytest.fixture
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens as many instances of one index as a test wants."""
    opened: list[NodeIndex] = []

    async def open_another() -> NodeIndex:
        opened.append(await OPENERS[request.param](tmp_path))
        return opened[-1]

    yield open_another
    if request.param in ON_SEARCH:
        await clear_away(await open_another())
    for one in opened:
        await one.close()

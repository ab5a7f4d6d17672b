"""
What holds for every test: servers that are started once a run, what the run says when one could not be had, and what it does not
take from its environment, so that it is the same run everywhere.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from deploy.local.servers import ServerMissingError
from tests.held_up import RealTime
from tests.servers import redis

T = TypeVar("T")
NOT_RUN = pytest.StashKey[dict[str, str]]()
RUNNING = "BANYAN_TEST_RUNNING"
"""A file that is to say which test runs (`tests.__main__`)."""
_OURS = ("BANYAN_TEST_", "BANYAN_CHAOS_", "BANYAN_SIMULATION_", "BANYAN_BENCH_")
"""Variables that are for the tests themselves."""
_FOREIGN = ("BANYAN_", "OPENAI_", "OTEL_", "FAUST_", "FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR", "COLUMNS")
"""Beginnings of variables that change what the programs under test do."""

# The same examples in every run, and no example may fail for having taken long; `--hypothesis-profile=default` looks for others.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Take nothing from the environment that was meant for others; tell what runs when asked (SIGUSR1)."""
    config.pluginmanager.register(RealTime(), "real-time")
    for name in list(os.environ):
        if name.startswith(_FOREIGN) and not name.startswith(_OURS):
            del os.environ[name]
    # Programs under test talk to this machine alone, and not through a company's proxy.
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "localhost,127.0.0.1,::1"]))
    # A run in the background may have been told to ignore Ctrl-C, and programs under test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Not the standard error that is captured from here on.
    faulthandler.register(signal.SIGUSR1, file=os.dup(2), all_threads=True)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Leave word of which test runs, for who looks from outside."""
    if name := os.environ.get(RUNNING):
        Path(name).write_text(nodeid, encoding="utf-8")


def served(config: pytest.Config, name: str, start: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """
    A server, or a skip that is told again at the end of the run. Where CI is set, a failure.

    Args:
        config: of the run.
        name: of what is started, for people.
        start: starts it.
    """
    try:
        running = start()
        server = running.__enter__()
    except ServerMissingError as error:
        if in_ci():
            pytest.fail(f"{name}: {error}")
        config.stash.setdefault(NOT_RUN, {})[name] = str(error)
        pytest.skip(f"{name}: {error}")
    try:
        yield server
    finally:
        running.__exit__(None, None, None)


@contextmanager
def started(server: AbstractContextManager[T]) -> Iterator[T]:
    """A server of one test; without one the test is skipped. Where CI is set, a failure."""
    try:
        running = server.__enter__()
    except ServerMissingError as error:
        if in_ci():
            pytest.fail(str(error))
        pytest.skip(str(error))
    try:
        yield running
    finally:
        server.__exit__(None, None, None)


def in_ci() -> bool:
    """Whether a part that cannot start is a failure."""
    return os.environ.get("CI", "").lower() == "true"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The last lines say what was not run, and how to get it."""
    for name, reason in config.stash.get(NOT_RUN, {}).items():
        terminalreporter.write_line(f"NOT RUN: tests on {name}: {reason}", yellow=True)


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.RedisServer]:
    """One Redis with an append-only file, for the whole run: tests use prefixes of their own."""
    folder = tmp_path_factory.mktemp("redis")
    yield from served(pytestconfig, "one Redis", lambda: redis.single(folder))


@pytest.fixture(scope="session")
def redis_url(request: pytest.FixtureRequest) -> str:
    """Address of one Redis: the one that BANYAN_TEST_REDIS names, or one that is started."""
    given = redis.given_url()
    if given is not None:
        return given
    server: redis.RedisServer = request.getfixturevalue("redis_server")
    return server.url


@pytest.fixture(scope="session")
def redis_cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[redis.RedisServer]]:
    """Three Redis nodes that make a cluster."""
    folder = tmp_path_factory.mktemp("redis-cluster")
    yield from served(pytestconfig, "a cluster of three Redis", lambda: redis.cluster(folder))

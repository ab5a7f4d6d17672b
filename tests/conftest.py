"""Servers that tests start once a run, and what the run says when one could not be had."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import pytest

from deploy.local.servers import ServerMissingError
from tests.servers import redis

T = TypeVar("T")
NOT_RUN = pytest.StashKey[dict[str, str]]()


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

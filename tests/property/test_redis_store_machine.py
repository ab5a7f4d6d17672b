"""The store in Redis against a plain tree in dictionaries: the rules of the SQLite store's machine, on a server."""

from __future__ import annotations

import itertools
import secrets

from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from memory.adapters.redis import Link, RedisSettings, RedisTreeStore
from tests.fakes.change_sets import tree_info
from tests.property.test_store_machine import StoreMachine


def test_the_store_in_redis_does_what_the_plain_tree_does(redis_url: str) -> None:
    prefix, numbers = f"test-{secrets.token_hex(6)}", itertools.count()

    class RedisMachine(StoreMachine):
        async def open(self) -> RedisTreeStore:
            self.link = await Link.open(RedisSettings(url=redis_url, prefix=f"{prefix}-{self.number}"))
            return RedisTreeStore(self.link)

        @initialize()
        def start(self) -> None:
            self.number = next(numbers)
            self.store = self.run(self.open())  # type: ignore[assignment]  # the base has SQLite's
            self.run(self.store.create_tree(tree_info()))

        @rule()
        def reopen(self) -> None:
            """By another process, on a server that has forgotten the scripts."""
            self.run(self.link.command("SCRIPT", "FLUSH"))
            self.run(self.store.close())
            self.store = self.run(self.open())  # type: ignore[assignment]

    run_state_machine_as_test(
        RedisMachine,
        settings=settings(
            max_examples=25, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
        ),
    )

"""Redis behind Sentinel: the master dies, a replica takes over, and what was acknowledged on both stands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from memory.adapters.redis import RedisTreeStore
from memory.ports.store import Applied, Seen
from streams.redis_options import redis_settings
from streams.settings import load
from tests.conftest import started
from tests.fakes.change_sets import TREE, change_set, insert, summary, tree_info
from tests.integration.redis.conftest import Connect
from tests.servers import redis

pytestmark = pytest.mark.slow
Served = tuple[redis.RedisServer, redis.RedisServer, list[redis.RedisServer]]


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with started(redis.with_sentinels(tmp_path_factory.mktemp("sentinel"))) as parts:
        yield parts


async def test_a_failover_is_followed_and_loses_nothing_that_a_replica_had(served: Served, connect: Connect) -> None:
    master, replica, sentinels = served
    address = ",".join(f"127.0.0.1:{each.port}" for each in sentinels)
    # As the settings give it to the adapter.
    given = {"BANYAN_STORE": f"redis+sentinel://{address}/mymaster?db=0", "BANYAN_REDIS_WAIT_REPLICAS": "1"}
    url = redis_settings(load(given).settings).url
    store = RedisTreeStore(await connect(url, wait_replicas=1, patience=timedelta(seconds=30)))
    await store.create_tree(tree_info())
    await store.apply(change_set(summary("s")))
    for number in range(5):
        assert isinstance(await store.apply(insert(f"e{number}", "s")), Applied)

    master.kill()
    sentinels[0].stop()  # a minority may be gone as well

    # There is no second replica to wait for after the failover.
    after = RedisTreeStore(await connect(url, patience=timedelta(seconds=30)))
    assert isinstance(await after.apply(insert("e4", "s")), Seen)
    assert isinstance(await after.apply(insert("new", "s")), Applied)
    stats = await after.stats(TREE)
    assert (stats.events, stats.leaves) == (6, 6)
    assert b"role:master" in replica.say("INFO", "replication")

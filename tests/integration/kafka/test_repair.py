"""`banyan repair`: a store that has lost commits has every record once afterwards, and nothing else is changed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory.model import TreeId
from memory.records import Feedback, Forget, Turn
from streams.bootstrap import open_backend, store_file
from streams.broker import Broker
from streams.repairing import spans
from streams.settings import Settings, load
from streams.topic_reader import TopicReader, reading
from streams.topics import topics
from tests.conftest import started
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.test_worker_redis import looking, report
from tests.integration.kafka.workers import LIMIT, ROOT, Workers, assert_whole, read, send, send_raw, turns
from tests.servers import redis

pytestmark = pytest.mark.slow
TREE = TreeId("t")


def banyan(environment: dict[str, str], *arguments: str, code: int = 0) -> dict[str, object]:
    """The last line that a command printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BANYAN_", "OPENAI_"))}
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli", *arguments, "--json"],
        env={**kept, **environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == code, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


async def test_commits_that_a_restored_redis_lost_are_put_back_beside_a_worker(broker: str, tmp_path: Path) -> None:
    with started(redis.single(tmp_path / "redis", appendfsync="always")) as server:
        environment = variables(broker, tmp_path) | {"BANYAN_STORE": server.url}
        settings = load(environment).settings
        await install(settings)
        workers = Workers(environment, tmp_path)
        try:
            worker = workers("worker", "ingest")
            await send(settings, turns(60))
            await until_there(settings, 60)
            copy = tmp_path / "older"
            shutil.copytree(server.folder / "appendonlydir", copy)
            await send(settings, turns(60, first=60))
            await until_there(settings, 120)

            server.kill()
            shutil.rmtree(server.folder / "appendonlydir")
            shutil.copytree(copy, server.folder / "appendonlydir")
            server.start()

            looked = banyan(environment, "repair", "--dry-run")
            assert (looked["read"], looked["known"], looked["missing"], looked["put_back"]) == (120, 60, 60, 0)
            repaired = banyan(environment, "repair", "--from", "1h")
            assert (repaired["known"], repaired["put_back"], repaired["conflicts"]) == (60, 60, 0)
            assert isinstance(repaired["jobs"], int)
            assert repaired["jobs"] > 0
            again = banyan(environment, "repair")
            assert (again["known"], again["put_back"]) == (120, 0)

            # The worker had seen more than the server has now.
            await send(settings, turns(30, first=120))
            await until_there(settings, 150)
            async with looking(settings) as inspect:
                checked = await inspect.check(TREE)
            assert checked.clean, checked.violations
            worker.signal()
            worker.ends()
        finally:
            workers.kill_all()


async def until_there(settings: Settings, count: int) -> None:
    async with asyncio.timeout(LIMIT):
        while not ((found := await report(settings, TREE)) and found.events == count):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def test_a_store_that_is_gone_is_made_anew_and_what_cannot_be_taken_is_not_given_up_again(
    installed: Settings, environment: dict[str, str]
) -> None:
    await send(installed, turns(40))
    await send_raw(installed, topics(installed.kafka).turns.name, b'{"tree":"t","id":"bad","text":""}')
    done = banyan(environment, "repair", code=3)
    assert (done["read"], done["put_back"], done["rejected"], done["errors"]) == (41, 40, 1, {"text": 1})
    await assert_whole(installed, 40)
    # Pending summaries have their jobs sent, whether a record of theirs was read or not.
    nothing = banyan(environment, "repair", "--from", "0s")
    assert (nothing["read"], nothing["put_back"]) == (0, 0)
    assert isinstance(nothing["jobs"], int)
    assert nothing["jobs"] > 0
    assert await read(installed, topics(installed.kafka).dead_letters.name) == []


async def test_feedback_comes_back_after_what_it_is_about_and_by_itself(installed: Settings, environment: dict[str, str]) -> None:
    environment = environment | {"BANYAN_STRUCTURE": "hmem"}
    verdicts = [
        Feedback(tree=TREE, id=f"f{number}", event=event, verdict="approval", at=datetime(2026, 5, 8, tzinfo=UTC))
        for number, event in enumerate(("e0", "e4", "never"))
    ]
    # Their topic has them first, and its partitions may be read first too.
    await send(installed, verdicts)
    await send(installed, turns(5))
    first = banyan(environment, "repair", code=3)
    assert (first["read"], first["put_back"], first["errors"]) == (8, 7, {"event": 1})
    again = banyan(environment, "repair", "--topic", "feedback", code=3)
    assert (again["read"], again["known"], again["put_back"], again["errors"]) == (3, 2, 0, {"event": 1})
    looked = banyan(environment, "repair", "--dry-run")
    assert (looked["read"], looked["known"], looked["missing"]) == (8, 7, 1)
    assert await read(installed, topics(installed.kafka).dead_letters.name) == []


async def test_what_was_forgotten_does_not_come_back_and_what_was_said_after_that_does(
    installed: Settings, environment: dict[str, str]
) -> None:
    names = topics(installed.kafka)

    async def later(*records: Turn | Forget) -> None:
        # Kafka counts milliseconds: what follows has another.
        await asyncio.sleep(0.05)
        await send(installed, records)
        await asyncio.sleep(0.05)

    first = turns(20)
    await send(installed, first[:15])
    assert banyan(environment, "repair")["put_back"] == 15
    # 3 of this conversation are in the store, and one is on its way to it.
    await later(first[15])
    await later(Forget(tree=TREE, id="x0", conversation="c0"), Forget(tree=TREE, id="x1", event="e1"))
    await later(*first[16:], Turn(tree=TREE, id="after", conversation="c0", text="the harbour again"))

    # No worker has read the forgets, and none has said what they named.
    done = banyan(environment, "repair", "--topic", "forgets")
    assert (done["read"], done["forgotten"]) == (0, 4)
    looked = banyan(environment, "repair", "--dry-run")
    assert (looked["missing"], looked["known"], looked["forgotten"]) == (5, 16, 1)
    repaired = banyan(environment, "repair")
    assert (repaired["put_back"], repaired["known"], repaired["forgotten"]) == (5, 16, 1)
    await assert_left(installed)
    told = [json.loads(each.value) for each in await read(installed, names.commits.name)]
    assert sorted(event for each in told for event in each["forgotten"]) == sorted(GONE)

    # The same for a store that has lost all, and for one that has lost nothing.
    shutil.rmtree(store_file(installed).parent)
    repaired = banyan(environment, "repair", "--topic", "turns")
    assert (repaired["put_back"], repaired["forgotten"]) == (16, len(GONE))
    await assert_left(installed)
    again = banyan(environment, "repair")
    assert (again["put_back"], again["known"], again["forgotten"]) == (0, 21, 0)


GONE = {"e0", "e1", "e5", "e10", "e15"}


async def assert_left(settings: Settings) -> None:
    backend = await open_backend(settings)
    events = {node.item.event_id async for node in backend.store.all_nodes(TREE) if node.item is not None}
    await backend.close()
    async with looking(settings) as inspect:
        checked = await inspect.check(TREE)
    assert events == {f"e{number}" for number in range(20)} - GONE | {"after"}
    assert checked.clean, checked.violations


async def test_only_what_is_asked_for_is_read(installed: Settings) -> None:
    names = topics(installed.kafka)
    both = [names.turns.name, names.documents.name]
    await send(installed, turns(40))

    async def count(
        reader: TopicReader, topics: list[str], start: int | datetime | None = None, partition: int | None = None
    ) -> int:
        wanted = await spans(reader, topics, start=start, partition=partition)
        found = [message async for some in reader.messages(wanted, batch=7) for message in some]
        assert len(found) == sum(span.size for span in wanted)
        assert len({(message.topic, message.partition, message.offset) for message in found}) == len(found)
        return len(found)

    async with reading(Broker.of(installed)) as reader:
        assert await count(reader, both) == 40
        assert await count(reader, [names.documents.name]) == 0
        assert await count(reader, both, datetime.now(UTC) + timedelta(hours=1)) == 0
        assert await count(reader, both, datetime.now(UTC) - timedelta(minutes=10)) == 40
        by_partition = [await count(reader, both, partition=number) for number in range(4)]
        assert sum(by_partition) == 40
        assert await count(reader, both, 1) == 40 - sum(bool(each) for each in by_partition)
        assert await count(reader, both, 10**9) == 0

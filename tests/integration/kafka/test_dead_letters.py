"""`banyan dead-letters` on a real broker: a letter is looked at, sent again, taken, and not sent twice."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from streams.dead_letters import decode_envelope
from streams.settings import Settings
from streams.topics import topics
from tests.integration.kafka.test_repair import banyan
from tests.integration.kafka.workers import LIMIT, STEADY, Worker, Workers, events_in, read, send, send_raw, turns, until_events

pytestmark = pytest.mark.slow
LONG = json.dumps({"tree": "t", "id": "long", "text": "harbour " * 30}).encode()


async def test_records_that_a_setting_refused_go_in_once_it_is_right(
    installed: Settings, environment: dict[str, str], workers: Workers
) -> None:
    names = topics(installed.kafka)
    await send(installed, turns(30))
    await send_raw(installed, names.turns.name, LONG, key=b"t/c")
    await send_raw(installed, names.turns.name, b"no json \xff", key=b"t/d")
    narrow = workers("worker", "ingest", BANYAN_INGEST_TURN_CHARACTERS_MAX="100", **STEADY)
    await until_events(installed, 30)
    narrow.until("dead letter", 2)
    narrow.signal()
    narrow.ends()

    listed = banyan(environment, "dead-letters", "list", "--only", "text")
    assert (listed["error"], listed["topic"], listed["replayed"]) == ("text", names.turns.name, False)
    shown = banyan(environment, "dead-letters", "show", str(listed["place"]))
    assert shown["text"] == LONG.decode()
    assert shown["key_text"] == "t/c"
    banyan_nothing = banyan(environment, "dead-letters", "replay", "--dry-run")
    assert (banyan_nothing["would_replay"], banyan_nothing["replayed"]) == (2, 0)

    wide = workers("worker", "ingest", **STEADY)
    assert banyan(environment, "dead-letters", "replay", "--only", "text")["replayed"] == 1
    await until_events(installed, 31)
    assert banyan(environment, "dead-letters", "replay", "--only", "text") == {
        "replayed": 0,
        "would_replay": 0,
        "already": 0,
        "foreign": 0,
        "forgotten": 0,
        "errors": {},
        "interrupted": False,
    }
    assert banyan(environment, "dead-letters", "replay")["errors"] == {"record": 1}
    wide.until("dead letter")
    came_back = banyan(environment, "dead-letters", "list")
    assert (came_back["error"], came_back["came_back"]) == ("record", True)
    assert await events_in(installed) == 31
    replayed = [message for message in await read(installed, names.turns.name) if dict(message.headers).get("banyan-replayed")]
    assert {message.value for message in replayed} == {LONG, b"no json \xff"}
    assert {message.key for message in replayed} == {b"t/c", b"t/d"}
    wide.signal()
    wide.ends()


async def test_a_worker_that_would_give_everything_up_ends_and_acknowledges_nothing(installed: Settings, workers: Workers) -> None:
    names = topics(installed.kafka)
    await send_raw(installed, names.turns.name, *[json.dumps({"tree": "t", "id": str(n), "txt": "x"}).encode() for n in range(300)])
    worker = workers("worker", "ingest", BANYAN_WORKER_DEAD_LETTERS_WINDOW="100")
    worker.ends(75)
    assert "of the last" in worker.log.read_text()
    assert "BANYAN_WORKER_DEAD_LETTERS_MAX" in worker.log.read_text()
    # The first batch is what is there when the worker looks: nothing is judged before a tenth of the window was seen.
    assert len(await read(installed, names.dead_letters.name)) < 10
    borne = workers("worker", "ingest", BANYAN_WORKER_DEAD_LETTERS_MAX="1")
    # Not so many lines of its log: how many letters the first one sent before it ended is not known.
    for_each = {(message.partition, message.offset) for message in await read(installed, names.turns.name)}
    assert len(for_each) == 300
    await until_letters(installed, for_each, borne)
    borne.signal()
    borne.ends()


async def until_letters(settings: Settings, places: set[tuple[int, int]], worker: Worker) -> None:
    """Wait until the records at these places, and no others, have letters."""
    end = time.monotonic() + LIMIT
    while (
        found := {
            (letter.partition, letter.offset)
            for letter in [
                decode_envelope(message.value) for message in await read(settings, topics(settings.kafka).dead_letters.name)
            ]
        }
    ) != places:
        assert found < places, found - places
        assert time.monotonic() < end, (places - found, worker.log.read_text()[-3000:])
        await asyncio.sleep(0.3)

"""Forgets on a real broker: before and after what they are about, twice over, and in the dead letters."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest

from memory.model import EventId, TreeId
from memory.ports.store import Receipt
from memory.records import Forget, Turn
from streams.bootstrap import store_file
from streams.dead_letters import SCHEMA, decode_envelope
from streams.schema_versions import SCHEMA_HEADER
from streams.settings import Settings
from streams.topics import topics
from tests.integration.kafka.test_repair import banyan
from tests.integration.kafka.workers import (
    LIMIT,
    Worker,
    Workers,
    committed,
    ends,
    events_in,
    looking,
    read,
    read_again,
    send,
    send_raw,
    turns,
    until_fresh,
)

pytestmark = pytest.mark.slow
TREE = TreeId("t")
WORD = "zanzibar"
SAID = f"the {WORD} papers lie behind the harbour clock"
COUNT = 30


def said(identity: str, text: str = SAID) -> Turn:
    """All with one key: what is sent after another is dealt with after it."""
    return Turn(tree=TREE, id=identity, conversation="private", text=text)


def forget(number: int, **what: str) -> Forget:
    return Forget(tree=TREE, id=f"x{number}", **what)  # type: ignore[arg-type]


async def receipts(settings: Settings, *events: str) -> dict[EventId, Receipt]:
    if not await events_in(settings, TREE):
        return {}
    async with looking(settings) as memory:
        return await memory.parts.store.receipts(TREE, [EventId(each) for each in events])


async def until(settings: Settings, worker: Worker, holds: Callable[[Receipt], bool], *events: str) -> None:
    """Wait until something holds of the receipts of all these events."""
    end = time.monotonic() + LIMIT
    while True:
        found = await receipts(settings, *events)
        if len(found) == len(events) and all(holds(receipt) for receipt in found.values()):
            return
        assert time.monotonic() < end, (events, found, worker.log.read_text()[-3000:])
        assert worker.process.poll() is None, worker.log.read_text()[-3000:]
        await asyncio.sleep(0.3)


async def until_read(settings: Settings, worker: Worker) -> None:
    """Wait until everything that was sent is acknowledged."""
    names = topics(settings.kafka)
    limit = time.monotonic() + LIMIT
    for topic in (names.turns.name, names.forgets.name):
        while (found := await committed(settings, f"{settings.kafka.prefix}-ingest", topic)) != await ends(settings, topic):
            assert time.monotonic() < limit, (topic, found, worker.log.read_text()[-3000:])
            await asyncio.sleep(0.5)


async def until_letters(settings: Settings, worker: Worker, *ids: str) -> None:
    end = time.monotonic() + LIMIT
    while (found := await letters(settings)).keys() < set(ids):
        assert time.monotonic() < end, (ids, found, worker.log.read_text()[-3000:])
        await asyncio.sleep(0.3)


async def letters(settings: Settings) -> dict[str, str]:
    """Texts of the dead letters that can be read, by the ids of their records."""
    kept = [each for each in await read(settings, dead(settings)) if dict(each.headers)[SCHEMA_HEADER] == SCHEMA]
    found = [json.loads(b64decode(decode_envelope(each.value).raw or "")) for each in kept]
    return {each["id"]: each["text"] for each in found}


def dead(settings: Settings) -> str:
    return topics(settings.kafka).dead_letters.name


async def whole(settings: Settings, events: int) -> None:
    """The word is nowhere, every other event is there once, and nothing is wrong with the tree."""
    async with looking(settings) as memory:
        texts = [node.text async for node in memory.parts.store.all_nodes(TREE)]
        checked, report = await memory.check(str(TREE)), await memory.stats(str(TREE))
    assert not any(WORD in text for text in texts)
    assert checked.clean, checked.violations
    assert (report.events, report.leaves) == (events, events)


async def test_before_its_turn_after_it_and_again(installed: Settings, environment: dict[str, str], workers: Workers) -> None:
    def there(receipt: Receipt) -> bool:
        return not receipt.forgotten

    def gone(receipt: Receipt) -> bool:
        return receipt.forgotten

    ingesting, summarizing = workers("worker", "ingest"), workers("worker", "summaries")
    forgets = [forget(0, event="early"), forget(1, event="late"), forget(2, conversation="other")]
    await send(installed, [*turns(COUNT, tree=TREE), forgets[0]])
    await until(installed, ingesting, there, "e0", f"e{COUNT - 1}")
    await until(installed, ingesting, gone, "early")
    await send(installed, [said("early"), said("late"), said("stays", "the harbour clock stands still")])
    other = Turn(tree=TREE, id="third", conversation="other", text=f"{WORD} again")
    await send(installed, [other])
    await until(installed, ingesting, there, "late", "stays", "third")
    await until_fresh(installed, TREE)
    await send(installed, forgets[1:])
    await until(installed, ingesting, gone, "late", "third", "early")
    await until_fresh(installed, TREE)
    await whole(installed, COUNT + 1)

    ingesting.kill()
    again = workers("worker", "ingest")
    await send(installed, [*turns(COUNT, tree=TREE), said("early"), said("late"), other, *forgets, said("last", "the clock")])
    await send(installed, [forget(3, event="end")])
    await until(installed, again, there, "last")
    await until(installed, again, gone, "end")
    await until_read(installed, again)
    await until_fresh(installed, TREE)
    await whole(installed, COUNT + 2)

    # All forgets come again, to a worker that knows of none: what was said since the conversation was forgotten stays.
    await send(installed, [Turn(tree=TREE, id="since", conversation="other", text="the harbour clock goes again")])
    await until(installed, again, there, "since")
    again.signal()
    again.ends()
    await read_again(installed, f"{installed.kafka.prefix}-ingest", topics(installed.kafka).forgets.name)
    again = workers("worker", "ingest")
    await until_read(installed, again)
    await until_fresh(installed, TREE)
    await whole(installed, COUNT + 3)
    told = [json.loads(each.value) for each in await read(installed, topics(installed.kafka).commits.name)]
    assert {event for each in told for event in each["forgotten"]} == {"early", "late", "third", "end"}
    assert await read(installed, dead(installed)) == []
    for worker in (again, summarizing):
        worker.signal()
        worker.ends()

    # A store that has lost all knows what was forgotten before it gets the rest back from the same topics.
    shutil.rmtree(store_file(installed).parent)
    looked = banyan(environment, "repair", "--dry-run")
    assert (looked["missing"], looked["forgotten"]) == (COUNT + 3, 4)
    repaired = banyan(environment, "repair")
    assert (repaired["put_back"], repaired["forgotten"]) == (COUNT + 3, 4)
    await whole(installed, COUNT + 3)


async def test_dead_letters_of_what_was_forgotten_go_and_are_not_sent_again(
    installed: Settings, environment: dict[str, str], workers: Workers
) -> None:
    name = topics(installed.kafka).turns.name
    worker = workers("worker", "ingest", BANYAN_INGEST_TURN_CHARACTERS_MAX="30")
    await send(installed, [said("fits", "the clock stands still")])
    for identity, text in (("keeps", "harbour " * 10), ("secret", SAID), ("other", SAID)):
        record = {"tree": TREE, "id": identity, "text": text}
        await send_raw(installed, name, json.dumps(record).encode(), key=b"t/private")
    await until_letters(installed, worker, "keeps", "secret", "other")
    worker.signal()
    worker.ends()

    report = banyan(environment, "forget", TREE, "--event", "secret")
    assert (report["unknown"], report["dead_letters"]) == (1, {"removed": 1, "moved": 1, "dropped": 0})
    assert (await letters(installed)).keys() == {"keeps", "other"}

    await send(installed, [forget(0, event="other")])
    second = workers("worker", "ingest", BANYAN_INGEST_TURN_CHARACTERS_MAX="30")
    await until(installed, second, lambda receipt: receipt.forgotten, "other")
    replayed = banyan(environment, "dead-letters", "replay")
    assert (replayed["replayed"], replayed["forgotten"], replayed["errors"]) == (1, 1, {"text": 1})
    assert banyan(environment, "dead-letters", "purge") == {"removed": 1, "moved": 0, "dropped": 0}
    assert (await letters(installed)).keys() == {"keeps"}
    left = b"".join(each.value or b"" for each in await read(installed, dead(installed)))
    assert b64encode(WORD.encode())[:-3] not in left
    told = [json.loads(each.value)["event"] for each in await read(installed, topics(installed.kafka).forgets.name)]
    assert told == ["secret", "other"], "a store that is to be repaired is told by the command as well"
    second.signal()
    second.ends()

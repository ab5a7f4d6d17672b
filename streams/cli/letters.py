"""The topic of dead letters as commands use it: opened by the settings, and rid of what was forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from streams.cli.common import Session
from streams.cli.console import counted

if TYPE_CHECKING:
    from streams.dead_letter_topic import DeadLetterTopic, Letter
    from streams.forgotten_letters import Choose, Purged


@asynccontextmanager
async def opened_letters(session: Session, choose: Callable[[Letter], bool] = lambda _: True) -> AsyncIterator[DeadLetterTopic]:
    """The topic of dead letters of the settings in force."""
    from streams.broker import Broker, need_kafka  # noqa: PLC0415
    from streams.dead_letter_topic import DeadLetterTopic  # noqa: PLC0415
    from streams.topic_reader import reading  # noqa: PLC0415
    from streams.topics import topics  # noqa: PLC0415

    need_kafka()
    settings = session.settings
    async with reading(Broker.of(settings), patience=settings.worker.patience.total_seconds()) as reader:
        yield DeadLetterTopic(reader, topics(settings.kafka), choose)


async def purging(session: Session, letters: DeadLetterTopic, choose: Choose) -> Purged:
    """Take the letters that are chosen off the topic."""
    from streams.broker import Broker, open_admin  # noqa: PLC0415
    from streams.forgotten_letters import purge as take_off  # noqa: PLC0415
    from streams.producing import Producer  # noqa: PLC0415

    broker = Broker.of(session.settings)
    producer = await Producer(broker).start()
    try:
        admin = await open_admin(broker)
        try:
            return await take_off(letters, choose, producer=producer, admin=admin, address=broker.address)
        finally:
            await admin.close()
    finally:
        await producer.stop()


def purged_text(purged: Purged) -> str:
    """What was done, for people."""
    if not purged.removed:
        return "there is no dead letter of what was forgotten"
    moved = f"; {purged.moved:,} that lay before them were sent to the topic again" if purged.moved else ""
    dropped = f"; {purged.dropped:,} that had been replayed went with them" if purged.dropped else ""
    return f"{counted(purged.removed, 'dead letter')} of what was forgotten taken off the topic{moved}{dropped}"


@asynccontextmanager
async def tombstones(session: Session) -> AsyncIterator[Choose]:
    """What finds the letters of events that the settings' store has forgotten; nothing while there is no store yet."""
    from streams.bootstrap import open_memory, store_file  # noqa: PLC0415
    from streams.forgotten_letters import forgotten_in  # noqa: PLC0415

    async def none(_letters: Sequence[Letter]) -> set[tuple[int, int]]:
        return set()

    settings = session.settings
    if not settings.store_is_redis and not store_file(settings).exists():
        yield none
        return
    memory = await open_memory(settings, summaries=False, read_only=True, embeds=False)
    try:
        yield forgotten_in(memory.parts.store)
    finally:
        await memory.close()

"""`banyan topics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streams.cli.app import Exit
from streams.cli.common import Session, run_async, shared_options

if TYPE_CHECKING:
    from streams.topics import Topic, TopicState


@click.group(
    epilog="""
\b
Examples:
  banyan topics create --partitions 16
  BANYAN_BROKER=kafka-1:9092,kafka-2:9092 banyan topics describe --json
"""
)
def topics() -> None:
    """Make the topics that workers read and write, or show them."""


@topics.command()
@click.option("--partitions", metavar="N", help="Partitions of each topic (BANYAN_KAFKA_PARTITIONS).")
@click.option("--replication", metavar="N", help="Copies of each topic (BANYAN_KAFKA_REPLICATION).")
@shared_options
@run_async
async def create(partitions: str | None, replication: str | None, session: Session) -> int:
    """
    Make the topics that are not there.

    A topic with fewer partitions than asked for gets more; nothing is ever taken away, and settings of a topic that is there stay
    as they are. After partitions were added, records of one conversation can lie in two of them for a while.
    """
    session.load(kafka_partitions=partitions, kafka_replication=replication)
    from streams import topics as kafka  # noqa: PLC0415
    from streams.broker import Broker, need_kafka, open_admin  # noqa: PLC0415

    need_kafka()
    settings = session.settings
    admin = await open_admin(Broker.of(settings))
    try:
        done = await kafka.create(admin, kafka.topics(settings.kafka).all, settings.kafka, settings.broker)
    finally:
        await admin.close()
    for each in done:
        if session.output.as_json:
            session.output.emit({"topic": each.name, "partitions": each.partitions, "before": each.before})
        elif not each.before:
            session.output.show(f"{each.name}: made, {each.partitions} partitions")
        elif each.before < each.partitions:
            session.output.show(f"{each.name}: {each.partitions} partitions, {each.before} before")
        else:
            session.output.show(f"{each.name}: is there, {each.partitions} partitions")
    return Exit.OK


@topics.command()
@shared_options
@run_async
async def describe(session: Session) -> int:
    """Show the topics as they are, and where that is not what the settings say. Exit code 1 when one is missing."""
    session.load()
    from streams import topics as kafka  # noqa: PLC0415
    from streams.broker import Broker, need_kafka, open_admin  # noqa: PLC0415

    need_kafka()
    settings = session.settings
    wanted = kafka.topics(settings.kafka).all
    admin = await open_admin(Broker.of(settings))
    try:
        states = await kafka.describe(admin, wanted, settings.kafka, settings.broker)
    finally:
        await admin.close()
    if session.output.as_json:
        for state in states:
            session.output.emit(state)
    else:
        _show(session, states, {topic.name: topic for topic in wanted})
    missing = [state.name for state in states if not state.partitions]
    if missing:
        session.output.note(f"{len(missing)} of {len(states)} topics are missing; {kafka.TOPICS_MISSING_HINT}")
    return Exit.FOUND if missing else Exit.OK


def _show(session: Session, states: list[TopicState], wanted: dict[str, Topic]) -> None:
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("topic", "key", "value", "read by", "partitions", "copies", "kept", "not as set"):
        table.add_column(column, overflow="fold")
    for state in states:
        topic = wanted[state.name]
        there = bool(state.partitions)
        table.add_row(
            state.name,
            topic.key,
            topic.value,
            topic.readers,
            str(state.partitions) if there else "missing",
            str(state.replication) if there else "",
            state.config.get("cleanup.policy", ""),
            "; ".join(state.differences),
        )
    session.output.show(table)

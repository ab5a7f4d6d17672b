"""
The topics (design section 7): names, keys, how they are kept; made by `banyan topics create`, never by a worker.

Order is kept within a key, so that everything of one conversation or one source is read in the order in which it was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory.errors import TransientError
from memory.model import NodeId, TreeId
from memory.records import Document, Record
from streams.broker import DEAD_LETTER_BYTES_MAX, MESSAGE_BYTES_MAX, BrokerRefusedError, BrokerUnavailableError, translated
from streams.setting_tables import KafkaSettings

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

TOPICS_MISSING_HINT = "`banyan topics create` makes them"
SPREAD_LIMIT = 10.0  # seconds
_SPREAD_EVERY = 0.1  # seconds
_EXISTS = 36
_UNKNOWN = 3
_NOT_ALLOWED = 29


class TopicsMissingError(TransientError):
    """Topics that a process needs are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic as it is to be."""

    name: str
    key: str
    """What its keys are made of."""
    value: str
    readers: str
    config: Mapping[str, str]
    """The topic's own settings, Kafka's names."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one installation."""

    turns: Topic
    documents: Topic
    summaries: Topic
    forgets: Topic
    feedback: Topic
    commits: Topic
    dead_letters: Topic

    @property
    def all(self) -> tuple[Topic, ...]:
        """In the order of the documentation."""
        return (self.turns, self.documents, self.summaries, self.forgets, self.feedback, self.commits, self.dead_letters)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as it is."""

    name: str
    partitions: int
    """0 when it is not there."""
    replication: int = 0
    config: Mapping[str, str]
    """Those of `Topic.config`, as they are."""
    differences: tuple[str, ...] = ()
    """Where it is not as the settings say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """What `create` did with a topic."""

    name: str
    partitions: int
    """Now."""
    before: int
    """0 when it was not there."""


def topics(settings: KafkaSettings) -> Topics:
    """The topics as the settings name them."""
    kept = {
        "cleanup.policy": "delete",
        "retention.ms": str(round(settings.retention.total_seconds() * 1000)),
        "max.message.bytes": str(MESSAGE_BYTES_MAX),
    }

    def topic(name: str, key: str, value: str, readers: str, **config: str) -> Topic:
        own = {each.replace("_", "."): setting for each, setting in config.items()}
        return Topic(name=f"{settings.prefix}.{name}", key=key, value=value, readers=readers, config={**kept, **own})

    # A job says nothing but which node; of several for one node the last is enough. What has waited for longer than the
    # retention goes all the same, or the topic would keep a record for every node that ever was: the node stays visibly dirty.
    compacted = {"cleanup_policy": "compact,delete", "max_message_bytes": "1048588"}
    return Topics(
        turns=topic("turns", "tree/conversation", "turn", "ingest workers"),
        documents=topic("documents", "tree/source", "document", "ingest workers"),
        summaries=topic("summaries", "tree/node", "summary job", "summary workers", **compacted),
        forgets=topic("forgets", "tree", "forget", "ingest workers"),
        feedback=topic("feedback", "tree", "feedback", "ingest workers"),
        commits=topic("commits", "tree", "what changed", "anyone"),
        dead_letters=topic("dead-letters", "as the source", "envelope", "people", max_message_bytes=str(DEAD_LETTER_BYTES_MAX)),
    )


def record_key(record: Record) -> bytes:
    """`tree/conversation` of a turn, `tree/source` of a document; one without is alone under its id, so that it moves freely."""
    group = record.source if isinstance(record, Document) else record.conversation
    return f"{record.tree}/{group if group is not None else record.id}".encode()


def job_key(tree: TreeId, node: NodeId) -> bytes:
    """`tree/node`."""
    return f"{tree}/{node}".encode()


async def create(admin: AIOKafkaAdminClient, wanted: Sequence[Topic], settings: KafkaSettings, address: str) -> list[Created]:
    """
    Make the topics that are not there, and add partitions where there are too few; never takes any away. Idempotent.

    Raises:
        BrokerUnavailableError, BrokerRefusedError: Kafka is away, or does not allow it.
    """
    from aiokafka.admin import NewPartitions, NewTopic  # noqa: PLC0415

    before = {state.name: state for state in await describe(admin, wanted, settings, address)}
    new = [
        NewTopic(topic.name, settings.partitions, settings.replication, topic_configs=dict(topic.config))
        for topic in wanted
        if not before[topic.name].partitions
    ]
    few = {name: NewPartitions(settings.partitions) for name, state in before.items() if 0 < state.partitions < settings.partitions}
    with translated(address):
        if new:
            _check((await admin.create_topics(new)).topic_errors, allowed=_EXISTS)
        if few:
            _check((await admin.create_partitions(few)).topic_errors)
    for _ in range(round(SPREAD_LIMIT / _SPREAD_EVERY) if new or few else 0):
        # What one broker made the others, and this client's metadata, learn a moment later.
        if all(state.partitions >= settings.partitions for state in await describe(admin, wanted, settings, address)):
            break
        await asyncio.sleep(_SPREAD_EVERY)
    return [
        Created(
            name=topic.name,
            partitions=max(before[topic.name].partitions, settings.partitions),
            before=before[topic.name].partitions,
        )
        for topic in wanted
    ]


async def describe(admin: AIOKafkaAdminClient, wanted: Sequence[Topic], settings: KafkaSettings, address: str) -> list[TopicState]:
    """
    The topics as they are, in the given order.

    Raises:
        BrokerUnavailableError: Kafka is away.
    """
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # noqa: PLC0415

    with translated(address):
        found: dict[str, Any] = {each["topic"]: each for each in await admin.describe_topics([topic.name for topic in wanted])}
        there = [topic for topic in wanted if found[topic.name]["error_code"] == 0]
        configs: dict[str, dict[str, str]] = {}
        if there:
            resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in there]
            for answer in await admin.describe_configs(resources):
                for _code, _message, _type, name, entries in answer.resources:
                    configs[name] = {entry[0]: entry[1] for entry in entries}
    states = []
    for topic in wanted:
        if topic not in there:
            states.append(TopicState(name=topic.name, partitions=0, config={}))
            continue
        partitions = found[topic.name]["partitions"]
        replication = min((len(each["replicas"]) for each in partitions), default=0)
        config = {name: configs.get(topic.name, {}).get(name, "") for name in topic.config}
        differences = [f"{name} is {config[name]}, not {value}" for name, value in topic.config.items() if config[name] != value]
        if len(partitions) != settings.partitions:
            differences.insert(0, f"partitions is {len(partitions)}, not {settings.partitions}")
        states.append(
            TopicState(
                name=topic.name,
                partitions=len(partitions),
                replication=replication,
                config=config,
                differences=tuple(differences),
            )
        )
    return states


async def require(admin: AIOKafkaAdminClient, names: Iterable[str], address: str) -> None:
    """
    Make sure that topics are there.

    Raises:
        TopicsMissingError: names those that are not, and the command that makes them.
        BrokerRefusedError: this user may not see some of them.
        BrokerUnavailableError: Kafka is away.
    """
    with translated(address):
        found = await admin.describe_topics(list(names))
    missing = sorted(each["topic"] for each in found if each["error_code"] == _UNKNOWN)
    if missing:
        raise TopicsMissingError(f"Kafka at {address} has no topic {', '.join(missing)}; {TOPICS_MISSING_HINT}")
    if hidden := sorted(each["topic"] for each in found if each["error_code"] == _NOT_ALLOWED):
        raise BrokerRefusedError(
            f"Kafka at {address} does not let this user see {', '.join(hidden)} (TopicAuthorizationFailed): docs/streams.md lists "
            "the rights that it needs"
        )
    if failed := [each["topic"] for each in found if each["error_code"]]:
        raise BrokerUnavailableError(f"Kafka at {address} says nothing about {', '.join(failed)} yet")


def _check(errors: Iterable[Any], *, allowed: int = 0) -> None:
    for error in errors:
        name, code = error[0], error[1]
        message = error[2] if len(error) > 2 else ""
        if code not in (0, allowed):
            raise BrokerRefusedError(f"Kafka does not make {name}: {message or f'error {code}'}")

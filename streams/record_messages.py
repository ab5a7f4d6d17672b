"""Records as they are sent to Kafka: each to the topic of its kind, with the key that keeps what belongs together in order."""

from __future__ import annotations

from memory.records import Document, Feedback, Forget, Record, Turn
from streams.events import encode
from streams.producing import Message
from streams.schema_versions import SCHEMA_HEADER, schema_of
from streams.topics import Topic, Topics, record_key
from streams.tracing import sent


def topic_of(topics: Topics, record: Record | Feedback | Forget) -> Topic:
    """Where a record goes."""
    if isinstance(record, Turn):
        return topics.turns
    if isinstance(record, Document):
        return topics.documents
    return topics.feedback if isinstance(record, Feedback) else topics.forgets


def message_of(topics: Topics, record: Record | Feedback | Forget) -> Message:
    """One message. The key of feedback and forgets is their tree: those of one tree are read in the order of their writing."""
    topic = topic_of(topics, record).name
    about: dict[str, str | int] = {"banyan.tree": record.tree, "banyan.event": record.id}
    headers = [(SCHEMA_HEADER, schema_of(record.KIND)), *sent(topic, attributes=about)]
    key = record_key(record) if isinstance(record, Turn | Document) else record.tree.encode()
    return Message(topic=topic, value=encode(record), key=key, headers=headers)

"""Feedback as it is sent to Kafka."""

from __future__ import annotations

from memory.records import Feedback
from streams.events import encode
from streams.producing import Message
from streams.schema_versions import SCHEMA_HEADER, schema_of
from streams.topics import Topics
from streams.tracing import sent


def feedback_message(topics: Topics, feedback: Feedback) -> Message:
    """One message, with the tree as its key: feedback of one tree is read in the order in which it was written."""
    topic = topics.feedback.name
    about: dict[str, str | int] = {"banyan.tree": feedback.tree, "banyan.event": feedback.id}
    headers = [(SCHEMA_HEADER, schema_of(feedback.KIND)), *sent(topic, attributes=about)]
    return Message(topic=topic, value=encode(feedback), key=feedback.tree.encode(), headers=headers)

"""
What is on the topics, for others: a JSON Schema of each record and an AsyncAPI 3 document, generated from the models.

`make schemas` writes them below `deploy/`; a test holds the files to the models. The decoder checks a little more than the schemas
say (longest texts, which are settings; that a time is one); a value that a schema allows and the decoder refuses becomes a dead
letter that says why.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from memory.records import SELECTORS, Document, Feedback, Forget, Turn
from memory.settings import IngestSettings
from streams.commit_topic import CommitMessage
from streams.dead_letter_topic import Replayed
from streams.dead_letters import REPLAYED_HEADER, Envelope
from streams.job_topic import JobMessage
from streams.schema_versions import SCHEMA_HEADER, schema_of, schemas_of
from streams.setting_tables import KafkaSettings
from streams.topics import Topic, Topics, topics

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ASYNCAPI_VERSION = "3.0.0"
ASYNCAPI_FILE = "asyncapi.json"
SCHEMA_FOLDER = "schemas"
_LIMITS = IngestSettings()


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of message."""

    name: str
    """As in the schema header."""
    model: type[msgspec.Struct]
    title: str
    example: Mapping[str, Any]
    extra: Mapping[str, Mapping[str, Any]]
    """Properties that the decoder takes beside the model's, and what is to be added to the model's."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """What holds for a message as a whole."""


_KIND = "Says outright which of the two a record is; without it a title, source, url or published_at makes it a document."
_TURN = {
    "tree": "user-42",
    "id": "t-981",
    "conversation": "c-7",
    "speaker": "Ana",
    "text": "The workshop moves to Friday.",
    "at": "2026-05-08T13:56:00Z",
}
_DOCUMENT = {
    "tree": "feed-tech",
    "id": "d-55",
    "title": "A tunnel opens",
    "text": "The tunnel under the harbour opens on Monday.",
    "source": "The Courier",
    "url": "https://example.org/tunnel",
    "published_at": "2026-05-08",
}
_TEXT = "At most {:,} characters unless a setting says otherwise, and not only white space."
_TIME = {"examples": ["2026-05-08T13:56:00Z", "2026-05-08"]}
_BASE64 = {"contentEncoding": "base64"}
FORMS = (
    Form(
        "turn",
        Turn,
        "A turn of a conversation",
        _TURN,
        {
            "type": {"const": "turn", "description": _KIND},
            "text": {"description": _TEXT.format(_LIMITS.turn_characters_max)},
            "at": _TIME,
        },
    ),
    Form(
        "document",
        Document,
        "A document",
        _DOCUMENT,
        {
            "type": {"const": "document", "description": _KIND},
            "text": {"description": _TEXT.format(_LIMITS.document_characters_max)},
            "published_at": _TIME,
        },
    ),
    Form(
        "feedback",
        Feedback,
        "What a user says of a turn or a document that was remembered",
        {"tree": "user-42", "id": "f-7", "event": "t-981", "verdict": "approval", "at": "2026-05-08T14:02:00Z"},
        {"type": {"const": "feedback", "description": "May be left out."}, "at": _TIME},
    ),
    Form(
        "forget",
        Forget,
        "What is to be forgotten",
        {"tree": "user-42", "id": "x-3", "event": "t-981"},
        {"type": {"const": "forget", "description": "May be left out."}, "before": _TIME, "at": _TIME},
        {"oneOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in SELECTORS]},
    ),
    Form(
        "summary-job",
        JobMessage,
        "A node whose summary is to be brought up to date",
        {"tree": "user-42", "node": "n1"},
        {"whole": {"description": "That it stands for all nodes of the tree that are dirty; said by messages of version 2 alone."}},
    ),
    Form(
        "commit",
        CommitMessage,
        "What a commit put into a tree",
        {
            "tree": "user-42",
            "seq": 17,
            "at": "2026-05-08T13:56:01+00:00",
            "events": ["t-981", "t-982"],
            "leaves": 2,
            "summaries": 1,
        },
        {},
    ),
    Form(
        "dead-letter",
        Envelope,
        "A message that no repetition helped with",
        {
            "topic": "banyan.turns",
            "partition": 3,
            "offset": 7,
            "timestamp": 1795252589.4,
            "key": "dXNlci00Mi9jLTc=",
            "raw": "eyJ0cmVlIjoidXNlci00MiJ9",
            "headers": [[SCHEMA_HEADER, "dHVybi8x"]],
            "error": "text",
            "reason": "is missing",
            "attempts": 1,
            "at": "2026-05-08T13:56:00+00:00",
            "also": [],
        },
        {"key": _BASE64, "raw": _BASE64},
    ),
    Form(
        "dead-letter-replayed",
        Replayed,
        "A note that a dead letter was sent again",
        {"partition": 3, "offset": 17, "at": "2026-05-08T13:56:00+00:00"},
        {},
    ),
)


def record_schema(form: Form) -> dict[str, Any]:
    """The JSON Schema of one kind of message, complete in itself. Fields that it does not name are allowed."""
    schema: dict[str, Any] = msgspec.json.schema(form.model, ref_template="#/$defs/{name}")
    body = dict(schema["$defs"][form.model.__name__])
    body["title"] = form.title
    body["examples"] = [dict(form.example)]
    properties = {name: dict(value) for name, value in body["properties"].items()}
    for name, more in form.extra.items():
        properties[name] = {**properties.get(name, {"type": "string"}), **more}
    if "metadata" in properties:
        properties["metadata"]["description"] = "Fields that the schema does not name are kept here as well."
    for name, value in properties.items():
        properties[name] = value = _without_tuples(value)  # noqa: PLW2901
        if value.get("default", ...) in (None, {}):
            del value["default"]  # says nothing that leaving the field out does not
    return {
        "$schema": DIALECT,
        "$id": f"urn:banyan:{schema_of(form.name).decode().replace('/', ':')}",
        **body,
        "properties": properties,
        **form.rules,
    }


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3 document of an installation with the usual prefix."""
    names = topics(KafkaSettings())
    readers = _channels(names)
    forms = {form.name: form for form in FORMS}
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": {
            "title": "Banyan",
            "version": "1",
            "description": (
                "Turns and documents go in by Kafka topics and become trees. Names begin with BANYAN_KAFKA_PREFIX, here banyan. "
                f"Order is kept within a key. The header {SCHEMA_HEADER} names a message's form and version; readers take "
                "messages without it."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {
            name: {
                "address": topic.name,
                "description": f"Key: {topic.key}. Read by {topic.readers}.",
                "messages": {form: {"$ref": f"#/components/messages/{form}"} for form in carried},
                "bindings": {"kafka": _topic_binding(topic)},
            }
            for name, (topic, carried) in readers.items()
        },
        "operations": _operations(readers),
        "components": {
            "messages": {name: _message(form) for name, form in forms.items()},
            "schemas": {name: _embedded(record_schema(form)) for name, form in forms.items()},
        },
    }


def files() -> dict[Path, bytes]:
    """What `make schemas` writes, by path below `deploy/`."""
    found = {Path(SCHEMA_FOLDER) / f"{form.name}.json": _pretty(record_schema(form)) for form in FORMS}
    return {**found, Path(ASYNCAPI_FILE): _pretty(asyncapi())}


def write(folder: Path) -> list[Path]:
    """Write the files below a folder; returns those that changed."""
    changed = []
    for name, content in files().items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            changed.append(path)
    return changed


def _channels(names: Topics) -> dict[str, tuple[Topic, Sequence[str]]]:
    return {
        "turns": (names.turns, ["turn", "document"]),
        "documents": (names.documents, ["document", "turn"]),
        "feedback": (names.feedback, ["feedback"]),
        "forgets": (names.forgets, ["forget"]),
        "summaries": (names.summaries, ["summary-job"]),
        "commits": (names.commits, ["commit"]),
        "deadLetters": (names.dead_letters, ["dead-letter", "dead-letter-replayed"]),
    }


def _operations(channels: Mapping[str, tuple[Topic, Sequence[str]]]) -> dict[str, Any]:
    """As AsyncAPI sees it: what Banyan receives others send, and the reverse."""
    said = {
        "takeTurns": ("receive", "turns", "Worker ingest puts each into its tree, once by its id."),
        "takeDocuments": (
            "receive",
            "documents",
            "Worker ingest cuts each into chunks and puts them into its tree, once by its id.",
        ),
        "takeFeedback": ("receive", "feedback", "Worker ingest weighs the turn or document that it is about, once by its id."),
        "takeForgets": (
            "receive",
            "forgets",
            "Worker ingest has the tree forget what it names: leaves go, summaries above them are remade without them, and what "
            "comes after its forget is not taken.",
        ),
        "sendSummaryJobs": ("send", "summaries", "Worker ingest names the nodes that a commit made dirty."),
        "takeSummaryJobs": ("receive", "summaries", "Worker summaries brings each node up to date."),
        "sendCommits": ("send", "commits", "Worker ingest says what it has put into a tree, at least once a commit."),
        "sendDeadLetters": ("send", "deadLetters", "Any worker, for a message that no repetition helps with."),
    }
    return {
        name: {
            "action": action,
            "channel": {"$ref": f"#/channels/{channel}"},
            "summary": summary,
            "messages": [{"$ref": f"#/channels/{channel}/messages/{form}"} for form in channels[channel][1]],
        }
        for name, (action, channel, summary) in said.items()
    }


def _message(form: Form) -> dict[str, Any]:
    schemas = [schema.decode() for schema in schemas_of(form.name)]
    said = {"enum": schemas} if len(schemas) > 1 else {"const": schemas[0]}
    headers: dict[str, Any] = {SCHEMA_HEADER: {"type": "string", **said}}
    if form.name in ("turn", "document", "feedback", "forget", "summary-job"):
        headers[REPLAYED_HEADER] = {
            "type": "string",
            "pattern": r"^[0-9]+:[0-9]+$",
            "description": "On a message that was sent again: the place of its dead letter.",
        }
    return {
        "name": form.name,
        "title": form.title,
        "contentType": "application/json",
        "headers": {"type": "object", "properties": headers},
        "payload": {"$ref": f"#/components/schemas/{form.name}"},
        "examples": [{"headers": {SCHEMA_HEADER: schemas[0]}, "payload": dict(form.example)}],
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": "0.5.0"}},
    }


def _topic_binding(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topicConfiguration": {
            "cleanup.policy": topic.config["cleanup.policy"].split(","),
            "retention.ms": int(topic.config["retention.ms"]),
            "max.message.bytes": int(topic.config["max.message.bytes"]),
        },
        "bindingVersion": "0.5.0",
    }


def _without_tuples(schema: Any) -> Any:
    """Tuples of one kind of element as arrays: AsyncAPI's own dialect has no `prefixItems`."""
    if isinstance(schema, list):
        return [_without_tuples(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _without_tuples(value) for name, value in schema.items()}
    if (prefix := found.pop("prefixItems", None)) is not None:
        assert all(each == prefix[0] for each in prefix), "a tuple of several kinds needs another form"
        found["items"] = prefix[0]
    return found


def _embedded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Inside AsyncAPI, whose own dialect has neither `$schema` nor `$id` there."""
    return {name: value for name, value in schema.items() if name not in ("$schema", "$id")}


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


if __name__ == "__main__":
    for each in write(Path(sys.argv[1])):
        sys.stdout.write(f"{each}\n")

"""Schemas of records and the AsyncAPI document: current, valid, and of one mind with the decoder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from memory.changes import LogEntry
from memory.errors import RecordError
from memory.model import EventId, NodeId, TreeId
from memory.ports.jobs import SummaryJob
from memory.records import Document, Forget, Turn
from streams.commit_topic import message_of
from streams.dead_letter_topic import Replayed
from streams.dead_letters import envelope
from streams.deliveries import Delivery
from streams.events import decode, decode_forget, encode
from streams.job_topic import JobMessage, decode_job, decode_message, job_delivery, whole_tree
from streams.schema_versions import SCHEMA_HEADER, VERSIONS, check_schema, schemas_of
from streams.schemas import FORMS, SCHEMA_FOLDER, Form, asyncapi, files, record_schema, write
from streams.setting_tables import KafkaSettings
from streams.topics import topics

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
BY_NAME = {form.name: form for form in FORMS}


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(record_schema(BY_NAME[name]))


def test_the_files_are_current() -> None:
    for name, content in files().items():
        assert (DEPLOY / name).read_bytes() == content, f"{name} is not current: `make schemas`"


def test_writing_again_changes_nothing(tmp_path: Path) -> None:
    assert len(write(tmp_path)) == len(files())
    assert write(tmp_path) == []


def test_there_is_no_schema_of_what_is_gone() -> None:
    assert {path.stem for path in (DEPLOY / SCHEMA_FOLDER).iterdir()} == set(BY_NAME) == set(VERSIONS)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_each_schema_is_one_and_its_example_fits(form: Form) -> None:
    schema = record_schema(form)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(dict(form.example))
    assert schema["$id"].endswith(f":{VERSIONS[form.name]}")


def examples() -> Iterator[tuple[str, bytes]]:
    turn = Turn(tree="t", id="1", text="a", conversation="c", speaker="s", at=datetime(2026, 1, 1, tzinfo=UTC), metadata={"a": [1]})
    yield "turn", encode(turn)
    yield "turn", encode(Turn(tree="t", id="1", text="a"))
    yield "document", encode(Document(tree="t", id="1", text="a", title="b", published_at=datetime(2026, 1, 1, tzinfo=UTC)))
    yield "forget", encode(Forget(tree="t", id="x", event="1"))
    yield "forget", encode(Forget(tree="t", id="x", before=datetime(2026, 1, 1, tzinfo=UTC), at=datetime(2026, 1, 1, tzinfo=UTC)))
    yield "summary-job", job_delivery("s", SummaryJob(tree=TreeId("t"), node=NodeId("n"), seq=3)).value or b""
    entry = LogEntry(seq=3, at=datetime(2026, 1, 1, tzinfo=UTC), steps=(), events=(EventId("e"),))
    yield "commit", msgspec.json.encode(message_of(TreeId("t"), entry))
    for key, value in ((b"\xff", b"\x00"), (None, None)):
        came = Delivery(topic="t", partition=1, offset=2, key=key, value=value, headers=(("h", b"\xff"),), timestamp=1.5)
        yield "dead-letter", msgspec.json.encode(envelope(came, RecordError("text", "is empty"), attempts=1, at="now", also=[came]))
    yield "dead-letter-replayed", msgspec.json.encode(Replayed(partition=1, offset=2, at="now"))
    for file in ("turns", "news"):
        for line in (ROOT / "examples" / "data" / f"{file}.jsonl").read_bytes().splitlines()[:20]:
            yield ("turn" if file == "turns" else "document"), line


@pytest.mark.parametrize(("name", "data"), list(examples()))
def test_what_is_sent_fits_its_schema(name: str, data: bytes) -> None:
    validator(name).validate(json.loads(data))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"more": 1, "still": {"a": None}},
        {"speaker": None, "conversation": None, "at": None},
        {"type": "turn"},
        {"metadata": {"a": 1}},
        {"at": "2026-05-08"},
        {"at": "2026-05-08T13:56:00"},
        {"tree": "a b"},
        {"tree": ""},
        {"tree": "x" * 129},
        {"tree": 3},
        {"id": ""},
        {"id": "i" * 257},
        {"id": None},
        {"text": ""},
        {"text": 7},
        {"speaker": ""},
        {"speaker": "s" * 1025},
        {"conversation": 4},
        {"metadata": [1]},
        {"metadata": "x"},
        {"at": 5},
    ],
    ids=lambda change: json.dumps(change)[:40],
)
@pytest.mark.parametrize("name", ["turn", "document"])
def test_schema_and_decoder_agree(name: str, change: Mapping[str, Any]) -> None:
    renamed = {"speaker": "title", "conversation": "source", "at": "published_at"} if name == "document" else {}
    value = {**BY_NAME[name].example, **{renamed.get(key, key): each for key, each in change.items()}}
    if value.get("type") is not None:
        value["type"] = name
    try:
        decode(json.dumps(value).encode())
        taken = True
    except RecordError:
        taken = False
    assert validator(name).is_valid(value) is taken


def test_a_job_that_fits_is_decoded_and_one_that_does_not_is_refused() -> None:
    schema = validator("summary-job")
    assert schema.is_valid({"tree": "t", "node": "n"})
    assert decode_job(b'{"tree":"t","node":"n"}').node == "n"
    assert not schema.is_valid({"tree": "t"})
    with pytest.raises(RecordError):
        decode_job(b'{"tree":"t"}')
    sent = whole_tree("s", TreeId("t"), NodeId("n"))
    assert schema.is_valid(json.loads(sent.value or b""))
    assert decode_message(sent.value) == (SummaryJob(tree=TreeId("t"), node=NodeId("n")), True)
    assert sent.key == b"t/", "no node's key: compaction must not put a job in its place"
    assert set(JobMessage.__struct_fields__) == set(record_schema(BY_NAME["summary-job"])["properties"])


def test_only_what_stands_for_a_whole_tree_says_what_older_workers_refuse() -> None:
    job = SummaryJob(tree=TreeId("t"), node=NodeId("n"))
    assert dict(job_delivery("s", job).headers) == {SCHEMA_HEADER: b"summary-job/1"}
    assert dict(whole_tree("s", job.tree, job.node).headers) == {SCHEMA_HEADER: b"summary-job/2"}
    for schema in (b"summary-job/1", b"summary-job/2"):
        check_schema(((SCHEMA_HEADER, schema),), "summary-job")
    with pytest.raises(RecordError, match="reads summary-job/1 and summary-job/2"):
        check_schema(((SCHEMA_HEADER, b"summary-job/3"),), "summary-job")


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"more": 1},
        {"type": "forget"},
        {"type": "turn"},
        {"event": None},
        {"event": None, "conversation": "c-7"},
        {"event": None, "before": "2026-05-08"},
        {"conversation": None, "before": None, "at": "2026-05-08T13:56:00Z"},
        {"conversation": "c-7"},
        {"before": "2026-05-08"},
        {"event": ""},
        {"event": 5},
        {"event": "i" * 257},
        {"event": None, "conversation": "s" * 1025},
        {"event": None, "before": 5},
        {"id": ""},
        {"id": None},
        {"tree": "a b"},
    ],
    ids=lambda change: json.dumps(change)[:40],
)
def test_schema_and_decoder_agree_on_forgets(change: Mapping[str, Any]) -> None:
    value = {**BY_NAME["forget"].example, **change}
    try:
        decode_forget(json.dumps(value).encode())
        taken = True
    except RecordError:
        taken = False
    assert validator("forget").is_valid(value) is taken


def test_every_topic_is_in_the_document() -> None:
    addresses = {channel["address"] for channel in asyncapi()["channels"].values()}
    assert addresses == {topic.name for topic in topics(KafkaSettings()).all}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_reference_leads_somewhere() -> None:
    document = asyncapi()
    found = set(references(document))
    assert found
    for reference in found:
        here = document
        for part in reference.removeprefix("#/").split("/"):
            here = here[part]
        assert here


def test_what_the_document_says_of_headers_is_what_is_read() -> None:
    for name, message in asyncapi()["components"]["messages"].items():
        ((header, value),) = message["examples"][0]["headers"].items()
        assert value.encode() == schemas_of(name)[0]
        said = message["headers"]["properties"][header]
        assert [each.encode() for each in said.get("enum", [said.get("const")])] == schemas_of(name)
        for schema in schemas_of(name):
            check_schema(((header, schema),), name)

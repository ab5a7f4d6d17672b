"""Names and keys of topics; records as they are sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from memory.errors import RecordError
from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob
from memory.records import Document, Record, Turn
from streams.events import decode, encode
from streams.job_topic import decode_job
from streams.setting_tables import KafkaSettings
from streams.topics import job_key, record_key, topics

DOCS = Path(__file__).parents[3] / "docs"


def test_names_begin_with_the_prefix() -> None:
    made = topics(replace(KafkaSettings(), prefix="acme"))
    assert {topic.name.split(".")[0] for topic in made.all} == {"acme"}
    assert len({topic.name for topic in made.all}) == 7


def test_every_topic_is_on_its_page() -> None:
    page = (DOCS / "streams.md").read_text(encoding="utf-8")
    for topic in topics(KafkaSettings()).all:
        assert f"| `{topic.name}` | {topic.key} | {topic.value} | {topic.readers} |" in page


def test_jobs_are_compacted_and_the_rest_is_kept_for_the_retention() -> None:
    made = topics(replace(KafkaSettings(), retention=timedelta(hours=1)))
    assert {topic.config["retention.ms"] for topic in made.all} == {"3600000"}
    assert [topic.name for topic in made.all if "compact" in topic.config["cleanup.policy"]] == ["banyan.summaries"]
    assert int(made.dead_letters.config["max.message.bytes"]) > int(made.turns.config["max.message.bytes"]) * 4 / 3


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (Turn(tree="t", id="1", text="a", conversation="c"), b"t/c"),
        (Turn(tree="t", id="1", text="a"), b"t/1"),
        (Document(tree="t", id="1", text="a", source="The Verge"), b"t/The Verge"),
        (Document(tree="t", id="1", text="a"), b"t/1"),
    ],
)
def test_what_belongs_together_has_one_key(record: Record, key: bytes) -> None:
    assert record_key(record) == key


@pytest.mark.parametrize(
    "line",
    [
        b'{"tree":"t","id":"1","text":"a"}',
        b'{"tree":"t","id":"1","text":"a","type":"document"}',
        b'{"tree":"t","id":"1","text":"a","title":"T","published_at":"2026-05-08","mood":["x"],"metadata":{"type":"y"}}',
        b'{"tree":"t","id":"1","text":"\\u00e9","speaker":"S","at":"2026-05-08T13:56:00+02:00","mood":1}',
    ],
)
def test_a_record_that_is_sent_arrives_as_it_was(line: bytes) -> None:
    record = decode(line)
    again = decode(encode(record))
    assert again == record
    assert again.digest == record.digest


def test_a_job_is_read_back() -> None:
    expected = SummaryJob(tree=TreeId("t"), node=NodeId("n"), seq=7)
    assert decode_job(b'{"tree":"t","node":"n","seq":7,"later":1}') == expected
    assert decode_job(b'{"tree":"t","node":"n"}') == replace(expected, seq=0), "as earlier versions sent it"
    assert job_key(TreeId("t"), NodeId("n")) == b"t/n"


@pytest.mark.parametrize(
    "data",
    [None, b"", b"x", b"{}", b'{"tree":"t","node":"n","seq":-1}', b'{"tree":"t","node":""}', b'{"tree":"a b","node":"n"}', b"\xff"],
)
def test_what_is_no_job_is_refused(data: bytes | None) -> None:
    with pytest.raises(RecordError):
        decode_job(data)

"""One decoder for all ways in: it names the field that is wrong, and never raises anything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import RecordError
from memory.records import Document, Turn
from streams.events import RECORD_BYTES_MAX, decode


def line(**fields: object) -> bytes:
    return json.dumps({"tree": "t", "id": "1", "text": "hello", **fields}).encode()


def test_a_turn_is_decoded() -> None:
    record = decode(line(speaker="Ana", at="2026-05-08T13:56:00+02:00"))
    assert isinstance(record, Turn)
    assert record.at is not None
    assert record.at.isoformat() == "2026-05-08T11:56:00+00:00"


def test_a_document_is_decoded() -> None:
    assert isinstance(decode(line(title="News", published_at="2026-05-08")), Document)


@pytest.mark.parametrize("text", ["שלום עולם", "\u202eabc", "👩‍👩‍👧 family", "naïve\tcafé", "line\nbreak"])
def test_any_writing_is_kept_as_it_is(text: str) -> None:
    assert decode(line(text=text)).text == text
    assert decode(json.dumps({"tree": "t", "id": "1", "text": text}, ensure_ascii=False).encode()).text == text


def test_a_byte_order_mark_and_white_space_do_not_matter() -> None:
    assert decode(b"\xef\xbb\xbf  " + line() + b"\r").id == "1"


def test_a_tree_is_filled_in_and_another_refused() -> None:
    assert decode(b'{"id":"1","text":"x"}', tree="mine").tree == "mine"
    with pytest.raises(RecordError) as caught:
        decode(line(), tree="mine")
    assert caught.value.field == "tree"


BAD = [
    (b"", "record", "is empty"),
    (b"hello", "record", "not JSON"),
    (b'{"tree":"t","id":"1","text":"cut of', "record", "ends in the middle"),
    (b'[{"tree":"t"}', "record", "jq"),
    (b'[{"tree":"t"}]', "record", "a list"),
    (b"3", "record", "a number"),
    (b'{"a":"\xff"}', "record", "not UTF-8: byte 0xff"),
    (b"\xff\xfe{\x00", "record", "not UTF-8"),
    (line().decode().encode("utf-16-le"), "record", "not JSON"),
    (b'{"tree":"t","id":"1","text":"\xed\xa0\x80"}', "record", "not UTF-8"),
    (b"[" * 100_000, "record", "nested"),
    (b'{"tree":"t","id":"1","text":"x","score":NaN}', "metadata.score", "nan is no JSON number"),
    (b'{"tree":"t","id":"1","text":"x","score":1e999}', "metadata.score", "inf is no JSON number"),
    (b'{"tree":"t","id":"1","text":"x","score":[-1e999]}', "metadata.score[0]", "-inf is no JSON number"),
    (b'{"tree":"t","id":"1","text":"x","score":-Infinity}', "metadata.score", "-inf is no JSON number"),
    (line(score=1) + b" trailing", "record", "not JSON"),
    (line(text="half \ud800"), "text", "surrogate"),
    (line(speaker="half \udfff"), "speaker", "surrogate"),
    (line(text="nul \x00"), "text", "NUL"),
    (b'{"tree":"t","id":"1","text":"raw nul \x00"}', "record", "not JSON"),
    (line(text="x" * 5_000_000), "text", "5,000,000 characters"),
    (line(text="x" * (RECORD_BYTES_MAX + 1)), "record", "bytes, at most 8,388,608"),
    (line(text=""), "text", "empty"),
    (line(text=" \n "), "text", "empty"),
    (line(text=7), "text", "a number"),
    (line(text=None), "text", "missing"),
    (b'{"tree":"t","text":"x"}', "id", "missing"),
    (b'{"id":"1","text":"x"}', "tree", "missing"),
    (line(id=12), "id", "a number"),
    (line(id=""), "id", "is empty"),
    (line(tree="a/b"), "tree", "a/b"),
    (line(tree="x" * 200), "tree", "128"),
    (line(at="yesterday"), "at", "ISO 8601"),
    (line(at=3), "at", "a number"),
    (line(metadata=[1]), "metadata", "a list"),
]


@pytest.mark.parametrize(("data", "field", "reason"), BAD, ids=[f"{field}-{number}" for number, (_, field, _) in enumerate(BAD)])
def test_what_is_wrong_is_named(data: bytes, field: str, reason: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode(data)
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert len(str(caught.value)) < 300


@given(
    st.binary(max_size=200) | st.text().map(str.encode) | st.builds(lambda value: json.dumps(value).encode(), st.from_type(dict))
)
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        decode(data)
    except RecordError as error:
        said = str(error)
    else:
        return
    assert ": " in said

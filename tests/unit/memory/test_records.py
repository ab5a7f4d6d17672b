"""What is taken as a record, and which field is named when it is not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import RecordError
from memory.records import Document, Turn, parse, parse_feedback, parse_forget, parse_time, tree_id
from memory.settings import IngestSettings

TURN: dict[str, Any] = {
    "tree": "user-42",
    "id": "t-1",
    "conversation": "c-7",
    "speaker": "Ana",
    "text": "Hello",
    "at": "2026-05-08T13:56:00Z",
}
DOCUMENT: dict[str, Any] = {
    "tree": "feed",
    "id": "d-1",
    "title": "A title",
    "text": "Body",
    "source": "The Paper",
    "published_at": "2026-05-08",
}


def test_a_turn_is_taken_as_it_is() -> None:
    record = parse({**TURN, "mood": "fine", "metadata": {"lang": "en"}})

    assert isinstance(record, Turn)
    assert (record.tree, record.id, record.conversation, record.speaker, record.text) == ("user-42", "t-1", "c-7", "Ana", "Hello")
    assert record.at == datetime(2026, 5, 8, 13, 56, tzinfo=UTC)
    assert record.metadata == {"lang": "en", "mood": "fine"}


def test_a_document_is_told_by_its_fields() -> None:
    record = parse(DOCUMENT)

    assert isinstance(record, Document)
    assert record.published_at == datetime(2026, 5, 8, tzinfo=UTC)


@pytest.mark.parametrize(("declared", "kind"), [("turn", Turn), ("document", Document)])
def test_a_declared_type_decides(declared: str, kind: type) -> None:
    assert isinstance(parse({"tree": "t", "id": "1", "text": "x", "type": declared}), kind)


def test_another_type_is_kept_as_metadata() -> None:
    assert parse({**TURN, "type": "greeting"}).metadata == {"type": "greeting"}


def test_text_with_emoji_and_right_to_left_script_is_kept() -> None:
    text = "مرحبا 👩‍👩‍👧 日本語"

    assert parse({**TURN, "text": text}).text == text


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"tree": None}, "tree", "is missing"),
        ({"tree": ""}, "tree", "1 to 128"),
        ({"tree": "a/b"}, "tree", "1 to 128"),
        ({"tree": "x" * 200}, "tree", "1 to 128"),
        ({"tree": "ok\n"}, "tree", "1 to 128"),
        ({"tree": 5}, "tree", "expected a string, got a number"),
        ({"id": None}, "id", "is missing"),
        ({"id": ""}, "id", "is empty"),
        ({"id": "x" * 300}, "id", "has 300 characters, at most 256 are taken"),
        ({"speaker": ""}, "speaker", "is empty"),
        ({"speaker": "x" * 2_000}, "speaker", "has 2,000 characters, at most 1,024 are taken"),
        ({"score": float("inf")}, "metadata.score", "inf is no JSON number"),
        ({"metadata": {"a": [1.5, {"b": float("nan")}]}}, "metadata.a[1].b", "nan is no JSON number"),
        ({"id": "a\x07b"}, "id", "control character U+0007"),
        ({"text": None}, "text", "is missing"),
        ({"text": "  \n "}, "text", "is empty"),
        ({"text": ["x"]}, "text", "got a list"),
        ({"text": "a\x00b"}, "text", "NUL character, at position 1"),
        ({"text": "a\ud800b"}, "text", "surrogate pair, at position 1"),
        ({"text": "x" * 40_000}, "text", "40,000 characters, at most 32,768"),
        ({"at": "yesterday"}, "at", "'yesterday' is not an ISO 8601 time"),
        ({"at": "2026-13-01"}, "at", "not an ISO 8601 time"),
        ({"at": 1_778_248_560}, "at", "expected an ISO 8601 time as a string, got a number"),
        ({"at": "0001-01-01T00:00:00+14:00"}, "at", "outside the years"),
        ({"speaker": 7}, "speaker", "expected `str | null`, got `int`"),
        ({"metadata": "x"}, "metadata", "expected an object, got a string"),
        ({"metadata": {str(number): 0 for number in range(70)}}, "metadata", "70 fields"),
        ({"metadata": {"big": "x" * 70_000}}, "metadata", "bytes as JSON"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse({**TURN, **change})

    assert caught.value.field == field
    assert reason in caught.value.reason


@pytest.mark.parametrize("value", [None, 3, "text", [1], True])
def test_only_an_object_is_a_record(value: object) -> None:
    with pytest.raises(RecordError, match="record: expected a JSON object"):
        parse(value)


def test_the_tree_can_be_given_from_outside_but_not_contradicted() -> None:
    without = {name: value for name, value in TURN.items() if name != "tree"}

    assert parse(without, tree="given").tree == "given"
    with pytest.raises(RecordError, match="tree: is 'user-42', but the records go into 'given'"):
        parse(TURN, tree="given")


def test_limits_are_settable() -> None:
    with pytest.raises(RecordError, match="at most 3"):
        parse(TURN, limits=IngestSettings(turn_characters_max=3))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-08", datetime(2026, 5, 8, tzinfo=UTC)),
        ("2026-05-08T13:56:00", datetime(2026, 5, 8, 13, 56, tzinfo=UTC)),
        ("2026-05-08T13:56:00+02:00", datetime(2026, 5, 8, 11, 56, tzinfo=UTC)),
        ("2026-05-08 13:56Z", datetime(2026, 5, 8, 13, 56, tzinfo=UTC)),
    ],
)
def test_times_are_taken_in_utc(text: str, expected: datetime) -> None:
    assert parse_time("at", text) == expected


def test_the_digest_tells_a_repetition_from_a_conflict() -> None:
    first = parse(TURN)

    assert parse({**TURN, "mood": "other"}).digest == first.digest
    assert parse({**TURN, "text": "Hello!"}).digest != first.digest
    assert parse({**TURN, "speaker": None, "conversation": "c-7Ana"}).digest != parse({**TURN, "speaker": "Ana"}).digest


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_comes_is_taken_or_refused_with_a_field(value: object) -> None:
    refused: RecordError | None = None
    text = ""
    try:
        text = parse(value).text
    except RecordError as error:
        refused = error

    assert (refused.field and refused.reason) if refused else text.strip()


@given(
    st.fixed_dictionaries(
        {"tree": st.just("t"), "id": st.text(min_size=1, max_size=20), "text": st.text(min_size=1)},
        optional={"metadata": st.dictionaries(st.text(), st.integers())},
    )
)
def test_whatever_is_taken_can_be_written_as_utf8(value: dict[str, Any]) -> None:
    try:
        record = parse(value)
    except RecordError:
        return
    assert (record.id + record.text).encode()
    assert tree_id(record.tree) == record.tree


FEEDBACK = {"tree": "t", "id": "f1", "event": "e1", "verdict": "rebuttal", "at": "2026-05-08T13:56:00+02:00"}


def test_feedback_is_read() -> None:
    found = parse_feedback({**FEEDBACK, "chunk": 2, "whatever": 1})
    assert (found.event, found.verdict, found.chunk) == ("e1", "rebuttal", 2)
    assert found.at.isoformat() == "2026-05-08T11:56:00+00:00"
    assert found.digest != parse_feedback(FEEDBACK).digest == parse_feedback({**FEEDBACK, "at": "2027-01-01"}).digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at": None}, "at: is missing"),
        ({"at": "soon"}, "at: 'soon' is not an ISO 8601 time such as 2026-05-08T13:56:00Z"),
        ({"event": 5}, "event: expected a string, got a number"),
        ({"event": ""}, "event: is empty"),
        ({"event": "a\x00"}, "event: contains the control character U+0000"),
        ({"id": "x" * 257}, "id: has 257 characters, at most 256 are taken"),
        ({"verdict": "fine"}, "verdict: is 'fine', there is approval and rebuttal"),
        ({"chunk": -1}, "chunk: expected `int` >= 0"),
        ({"chunk": "1"}, "chunk: expected `int | null`, got `str`"),
        ({"tree": "a/b"}, "tree: 'a/b' is not 1 to 128 of the characters A-Z a-z 0-9 . _ : -"),
        ({"type": "turn"}, "type: is 'turn', feedback was expected"),
    ],
)
def test_what_is_no_feedback_is_refused_with_its_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError) as refused:
        parse_feedback({**FEEDBACK, **change})
    assert str(refused.value) == message


FORGET = {"tree": "t", "id": "x1", "event": "e1"}


def test_a_forget_names_one_event_one_conversation_or_a_time() -> None:
    found = parse_forget({**FORGET, "at": "2026-05-08T13:56:00+02:00", "whatever": 1})
    assert (found.event, found.conversation, found.before) == ("e1", None, None)
    assert found.at is not None
    assert found.at.isoformat() == "2026-05-08T11:56:00+00:00"
    assert parse_forget({"id": "x1", "conversation": "c 7"}, tree="t").conversation == "c 7"
    assert parse_forget({"id": "x1", "tree": "t", "before": "2026-05-08"}).before == datetime(2026, 5, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": None}, "event: of event, conversation, before exactly one says what is to be forgotten; none is given"),
        (
            {"before": "2026-05-08"},
            "event: of event, conversation, before exactly one says what is to be forgotten; event and before are given",
        ),
        ({"event": "a\x00"}, "event: contains the control character U+0000"),
        ({"event": None, "conversation": ""}, "conversation: is empty"),
        ({"event": None, "before": "soon"}, "before: 'soon' is not an ISO 8601 time such as 2026-05-08T13:56:00Z"),
        ({"id": None}, "id: is missing"),
        ({"tree": "a/b"}, "tree: 'a/b' is not 1 to 128 of the characters A-Z a-z 0-9 . _ : -"),
        ({"type": "turn"}, "type: is 'turn', forget was expected"),
    ],
)
def test_what_is_no_forget_is_refused_with_its_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError) as refused:
        parse_forget({**FORGET, **change})
    assert str(refused.value) == message

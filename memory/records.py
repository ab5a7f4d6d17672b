"""
What arrives: turns, documents, feedback and forgets (design section 7), validated once for files, HTTP, Kafka and library use.

`parse` takes a decoded JSON object. Unknown fields are kept in `metadata`; times are ISO 8601, without a zone taken as UTC.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from memory.errors import RecordError
from memory.model import TreeId
from memory.settings import IngestSettings

TREE_PATTERN = r"^[A-Za-z0-9._:-]{1,128}$"
ID_CHARACTERS_MAX = 256
FIELD_CHARACTERS_MAX = 1_024
METADATA_FIELDS_MAX = 64
METADATA_BYTES_MAX = 65_536

_TREE = re.compile(TREE_PATTERN)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_DEFAULT_LIMITS = IngestSettings()

Tree = Annotated[str, Meta(pattern=TREE_PATTERN, description="Name of the tree.")]
Id = Annotated[str, Meta(min_length=1, max_length=ID_CHARACTERS_MAX, description="The caller's id; makes the event idempotent.")]
Label = Annotated[str, Meta(min_length=1, max_length=FIELD_CHARACTERS_MAX)]
Text = Annotated[str, Meta(min_length=1)]
Time = Annotated[datetime, Meta(description="ISO 8601; without a zone taken as UTC.")]
Extra = Annotated[dict[str, Any], Meta(description="Whatever else the record carried.")]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation."""

    KIND: ClassVar[Literal["turn"]] = "turn"

    tree: Tree
    id: Id
    text: Text
    conversation: Label | None = None
    speaker: Label | None = None
    at: Time | None = None
    metadata: Extra = {}

    @property
    def digest(self) -> bytes:
        """16 bytes that identify what was said: the same id with another digest is a conflict."""
        return _digest(self.KIND, self.conversation or "", self.speaker or "", self.text)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One document: an article, a page."""

    KIND: ClassVar[Literal["document"]] = "document"

    tree: Tree
    id: Id
    text: Text
    title: Label | None = None
    source: Label | None = None
    url: Annotated[str, Meta(min_length=1, max_length=4_096)] | None = None
    published_at: Time | None = None
    metadata: Extra = {}

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the content: the same id with another digest is a conflict."""
        return _digest(self.KIND, self.title or "", self.text)


Record = Turn | Document


Verdict = Literal["approval", "rebuttal"]
"""What a user says of something that was remembered."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """What a user says of a turn or a document that was remembered (H-MEM, section 3.3)."""

    KIND: ClassVar[Literal["feedback"]] = "feedback"

    tree: Tree
    id: Id
    event: Annotated[str, Meta(min_length=1, max_length=ID_CHARACTERS_MAX, description="Id of the turn or document it is about.")]
    verdict: Verdict
    at: Annotated[datetime, Meta(description="When it was given, ISO 8601; without a zone taken as UTC.")]
    chunk: Annotated[int, Meta(ge=0, lt=2**31, description="Which chunk of a document; without it all.")] | None = None

    @property
    def digest(self) -> bytes:
        """16 bytes that identify what was said: the same id with another digest is a conflict."""
        return _digest(self.KIND, self.event, self.verdict, "" if self.chunk is None else str(self.chunk))


_FORGOTTEN_EVENT = "Id of a turn, a document or feedback; one that has not come yet is not taken when it comes."
_FORGOTTEN_TURNS = "Whose turns go, as far as they are in the tree."
_FORGOTTEN_PAST = "What was said or published before this time goes, as far as it is in the tree; ISO 8601."


class Forget(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be forgotten of a tree: one event, one conversation, or all before a time; exactly one of the three is given."""

    KIND: ClassVar[Literal["forget"]] = "forget"

    tree: Tree
    id: Annotated[str, Meta(min_length=1, max_length=ID_CHARACTERS_MAX, description="The caller's id of this forget, for logs.")]
    event: Annotated[str, Meta(min_length=1, max_length=ID_CHARACTERS_MAX, description=_FORGOTTEN_EVENT)] | None = None
    conversation: Annotated[str, Meta(min_length=1, max_length=FIELD_CHARACTERS_MAX, description=_FORGOTTEN_TURNS)] | None = None
    before: Annotated[datetime, Meta(description=_FORGOTTEN_PAST)] | None = None
    at: Annotated[datetime, Meta(description="When it was asked for, ISO 8601; without a zone taken as UTC.")] | None = None


Form = TypeVar("Form", bound=msgspec.Struct)

_FIELDS: dict[type[Record], frozenset[str]] = {
    Turn: frozenset(Turn.__struct_fields__),
    Document: frozenset(Document.__struct_fields__),
}
SELECTORS = ("event", "conversation", "before")
"""What a forget can name, one of them."""
_ONLY_DOCUMENT = _FIELDS[Document] - _FIELDS[Turn]
_REASON = re.compile(r"^(?P<reason>.*?) - at `\$\.?(?P<field>[^`]*)`$")
_LENGTH = re.compile(r"of length [<>]= (?P<limit>\d+)")


def parse(value: object, *, tree: str | None = None, limits: IngestSettings = _DEFAULT_LIMITS) -> Record:
    """
    A turn or a document from a decoded JSON object.

    An object with a title, source, url or published_at and neither conversation nor speaker is a document, any other a turn;
    `"type": "turn"` or `"document"` says it outright.

    Args:
        value: as decoded from JSON.
        tree: the tree to take when the object names none; an object that names another one is refused.
        limits: longest texts.

    Raises:
        RecordError: with the field that is wrong, and why.
    """
    if not isinstance(value, Mapping):
        raise RecordError("record", f"expected a JSON object, got {_kind(value)}")
    given = dict(value)
    kind = _type_of(given)
    if tree is not None and given.setdefault("tree", tree) != tree:
        raise RecordError("tree", f"is {_excerpt(given['tree'])}, but the records go into {_excerpt(tree)}")
    known = {name: given.pop(name) for name in _FIELDS[kind] if name in given}
    for name in ("tree", "id", "text"):
        if known.get(name) is None:
            raise RecordError(name, "is missing")
        if not isinstance(known[name], str):
            raise RecordError(name, f"expected a string, got {_kind(known[name])}")
    _check_tree(known["tree"])
    _check_text(known, limits.turn_characters_max if kind is Turn else limits.document_characters_max)
    for name in ("at", "published_at"):
        if known.get(name) is not None:
            known[name] = parse_time(name, known[name])
    for name, field in known.items():
        if isinstance(field, str) and name != "text":
            _check_characters(name, field)
    known["metadata"] = _metadata(known.get("metadata"), given)
    return _convert(known, kind)


def parse_feedback(value: object, *, tree: str | None = None) -> Feedback:
    """
    Feedback from a decoded JSON object; fields that it does not have are passed over.

    Args:
        value: as decoded from JSON.
        tree: the tree to take when the object names none; an object that names another one is refused.

    Raises:
        RecordError: with the field that is wrong, and why.
    """
    given = _named(value, Feedback, Feedback.KIND, tree=tree, words=("event", "verdict"))
    for name in ("event", "verdict", "at"):
        if name not in given:
            raise RecordError(name, "is missing")
    if given["verdict"] not in VERDICTS:
        raise RecordError("verdict", f"is {_excerpt(given['verdict'])}, there is {' and '.join(VERDICTS)}")
    given["at"] = parse_time("at", given["at"])
    return _convert(given, Feedback)


def parse_forget(value: object, *, tree: str | None = None) -> Forget:
    """
    A forget from a decoded JSON object; fields that it does not have are passed over.

    Args:
        value: as decoded from JSON.
        tree: the tree to take when the object names none; an object that names another one is refused.

    Raises:
        RecordError: with the field that is wrong, and why.
    """
    given = _named(value, Forget, Forget.KIND, tree=tree, words=("event", "conversation"))
    chosen = [name for name in SELECTORS if name in given]
    if len(chosen) != 1:
        said = f"{' and '.join(chosen)} are given" if chosen else "none is given"
        raise RecordError("event", f"of {', '.join(SELECTORS)} exactly one says what is to be forgotten; {said}")
    for name in ("before", "at"):
        if name in given:
            given[name] = parse_time(name, given[name])
    return _convert(given, Forget)


def parse_time(name: str, value: object) -> datetime:
    """
    A time in ISO 8601 (`2026-05-08`, `2026-05-08T13:56:00Z`, …) in UTC; without a zone it is taken as UTC.

    Args:
        name: of the field, for the error.
        value: the string, or a datetime as it is.

    Raises:
        RecordError: not such a time.
    """
    if isinstance(value, datetime):
        parsed = value
    elif isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value.strip())
        except ValueError as error:
            raise RecordError(name, f"{_excerpt(value)} is not an ISO 8601 time such as 2026-05-08T13:56:00Z") from error
    else:
        raise RecordError(name, f"expected an ISO 8601 time as a string, got {_kind(value)}")
    try:
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except OverflowError as error:
        raise RecordError(name, f"{_excerpt(value)} is outside the years 1 to 9999 in UTC") from error


def tree_id(name: str) -> TreeId:
    """
    A valid tree name.

    Raises:
        RecordError: empty, too long, or with other characters than letters, digits, `.`, `_`, `:` and `-`.
    """
    _check_tree(name)
    return TreeId(name)


def _named(value: object, form: type[msgspec.Struct], kind: str, *, tree: str | None, words: Sequence[str]) -> dict[str, Any]:
    """The fields that a form has and the object gives, with its tree and id, which it must have; `words` are strings if given."""
    if not isinstance(value, Mapping):
        raise RecordError("record", f"expected a JSON object, got {_kind(value)}")
    given = {name: value[name] for name in form.__struct_fields__ if value.get(name) is not None}
    if value.get("type", kind) != kind:
        raise RecordError("type", f"is {_excerpt(value['type'])}, {kind} was expected")
    if tree is not None and given.setdefault("tree", tree) != tree:
        raise RecordError("tree", f"is {_excerpt(given['tree'])}, but the {kind} is of {_excerpt(tree)}")
    for name in ("tree", "id"):
        if name not in given:
            raise RecordError(name, "is missing")
    for name in ("tree", "id", *words):
        if name in given:
            if not isinstance(given[name], str):
                raise RecordError(name, f"expected a string, got {_kind(given[name])}")
            _check_characters(name, given[name])
    _check_tree(given["tree"])
    return given


def _type_of(given: dict[str, Any]) -> type[Record]:
    declared = given.get("type")
    if declared in ("turn", "document"):
        del given["type"]
        return Turn if declared == "turn" else Document
    is_document = bool(_ONLY_DOCUMENT & given.keys()) and not {"conversation", "speaker"} & given.keys()
    return Document if is_document else Turn


def _check_tree(name: str) -> None:
    if not _TREE.match(name) or name.endswith("\n"):
        raise RecordError("tree", f"{_excerpt(name)} is not 1 to 128 of the characters A-Z a-z 0-9 . _ : -")


def _check_text(known: dict[str, Any], characters_max: int) -> None:
    text = known["text"]
    if len(text) > characters_max:
        raise RecordError("text", f"has {len(text):,} characters, at most {characters_max:,} are taken")
    if not text.strip():
        raise RecordError("text", "is empty")
    if "\x00" in text:
        raise RecordError("text", f"contains the NUL character, at position {text.index(chr(0))}")
    _check_surrogates("text", text)


def _check_characters(name: str, field: str) -> None:
    found = _CONTROL.search(field)
    if found:
        raise RecordError(name, f"contains the control character U+{ord(found.group()):04X}")
    _check_surrogates(name, field)


def _check_surrogates(name: str, field: str) -> None:
    found = _SURROGATE.search(field)
    if found:
        raise RecordError(name, f"contains half of a surrogate pair, at position {found.start()}")


def _metadata(declared: object, unknown: dict[str, Any]) -> dict[str, Any]:
    if declared is not None and not isinstance(declared, Mapping):
        raise RecordError("metadata", f"expected an object, got {_kind(declared)}")
    metadata = {**(declared or {}), **unknown}
    if len(metadata) > METADATA_FIELDS_MAX:
        raise RecordError("metadata", f"has {len(metadata)} fields, at most {METADATA_FIELDS_MAX} are kept")
    for name in metadata:
        if not isinstance(name, str):
            raise RecordError("metadata", f"field names are strings, got {_kind(name)}")
        _check_characters("metadata", name)
    try:
        size = len(msgspec.json.encode(metadata))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise RecordError("metadata", f"is not JSON: {_excerpt(str(error))}") from error
    _check_numbers(metadata)
    if size > METADATA_BYTES_MAX:
        raise RecordError("metadata", f"has {size:,} bytes as JSON, at most {METADATA_BYTES_MAX:,} are kept")
    return metadata


def _check_numbers(metadata: dict[str, Any]) -> None:
    """JSON has no infinity and no NaN: they would be kept as null."""
    left: list[tuple[str, Any]] = [(f"metadata.{name}", value) for name, value in metadata.items()]
    while left:
        name, value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise RecordError(name, f"{value} is no JSON number")
        if isinstance(value, Mapping):
            left.extend((f"{name}.{key}", inner) for key, inner in value.items())
        elif isinstance(value, list | tuple | set | frozenset):
            left.extend((f"{name}[{index}]", inner) for index, inner in enumerate(value))


def _convert(known: dict[str, Any], kind: type[Form]) -> Form:
    try:
        return msgspec.convert(known, kind)
    except msgspec.ValidationError as error:
        found = _REASON.match(str(error))
        field = (found["field"] if found else "") or "record"
        reason = found["reason"] if found else str(error)
        if length := _LENGTH.search(reason):
            given = len(known[field])
            reason = f"has {given:,} characters, at most {int(length['limit']):,} are taken" if given else "is empty"
        raise RecordError(field, reason[:1].lower() + reason[1:]) from error


def _digest(*parts: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.digest()


def _excerpt(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _kind(value: object) -> str:
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)

"""Bytes to records: the one decoder that the command line, HTTP and Kafka share. It names the field that is wrong."""

from __future__ import annotations

import json

import msgspec

from memory.errors import RecordError
from memory.records import Feedback, Forget, Record, parse, parse_feedback, parse_forget
from memory.settings import IngestSettings

RECORD_BYTES_MAX = 8 * 1024 * 1024
"""Longest record, in bytes of JSON. The longest document (a million characters) fits, also when every character is escaped."""

_BOM = b"\xef\xbb\xbf"
_LIMITS = IngestSettings()


def decode(line: bytes, *, tree: str | None = None, limits: IngestSettings = _LIMITS) -> Record:
    """
    A turn or a document from one JSON object in UTF-8.

    Args:
        line: the object, with or without a byte order mark and white space around it.
        tree: the tree to take when the object names none; an object that names another one is refused.
        limits: longest texts.

    Raises:
        RecordError: with the field that is wrong ("record" when it is the whole), and why.
    """
    return parse(_read(line), tree=tree, limits=limits)


def decode_feedback(line: bytes, *, tree: str | None = None) -> Feedback:
    """
    Feedback from one JSON object in UTF-8.

    Args:
        line: the object, as for `decode`.
        tree: the tree to take when the object names none; an object that names another one is refused.

    Raises:
        RecordError: with the field that is wrong, and why.
    """
    return parse_feedback(_read(line), tree=tree)


def decode_forget(line: bytes, *, tree: str | None = None) -> Forget:
    """
    A forget from one JSON object in UTF-8.

    Args:
        line: the object, as for `decode`.
        tree: the tree to take when the object names none; an object that names another one is refused.

    Raises:
        RecordError: with the field that is wrong, and why.
    """
    return parse_forget(_read(line), tree=tree)


def encode(record: Record | Feedback | Forget) -> bytes:
    """One JSON object that the decoder of its kind makes the same record of; it says its type, whatever fields it has."""
    fields = {name: value for name, value in msgspec.structs.asdict(record).items() if value is not None and value != {}}
    return msgspec.json.encode({"type": record.KIND, **fields})


def too_long(size: int) -> str:
    """Why a record of that many bytes is refused."""
    return f"has {size:,} bytes, at most {RECORD_BYTES_MAX:,} are taken"


def _read(line: bytes) -> object:
    if len(line) > RECORD_BYTES_MAX:
        raise RecordError("record", too_long(len(line)))
    return _json(line.removeprefix(_BOM))


def _json(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise _not_utf8(data, error) from error
    except RecursionError as error:
        raise RecordError("record", "is nested too deeply") from error
    except msgspec.DecodeError as error:
        return _json_again(data, str(error))


def _json_again(data: bytes, reason: str) -> object:
    # msgspec takes no half surrogates and no numbers outside of a float; the standard library takes both, and NaN, so that
    # the record's own checks can name the field. What neither reads is not JSON.
    try:
        # Decoded here: given bytes, it would also take UTF-16 and UTF-32.
        return json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise _not_utf8(data, error) from error
    except RecursionError as error:
        raise RecordError("record", "is nested too deeply") from error
    except json.JSONDecodeError as error:
        if not data.strip():
            raise RecordError("record", "is empty") from error
        where = "ends in the middle" if "truncated" in reason else f"{error.msg.lower()} at character {error.pos + 1}"
        hint = ""
        if data.lstrip()[:1] == b"[":
            hint = "; one JSON object a line is expected, not a list (jq -c '.[]' FILE makes such lines)"
        raise RecordError("record", f"is not JSON: {where}{hint}") from error
    except ValueError as error:
        raise RecordError("record", f"is not JSON: {error}") from error


def _not_utf8(data: bytes, error: UnicodeDecodeError) -> RecordError:
    try:
        data.decode()
    except UnicodeDecodeError as found:
        return RecordError("record", f"is not UTF-8: byte 0x{data[found.start]:02x} at position {found.start + 1}")
    return RecordError("record", f"is not UTF-8: {error.reason}")

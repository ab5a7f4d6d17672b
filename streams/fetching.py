"""Records whose headers have names that are no text: other clients send any bytes, and aiokafka cannot read past them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

_WITH_HEADERS = 2
"""Version of the format of records."""


@cache
def take_any_header() -> None:
    """
    Have aiokafka's consumers of this process read headers whose names are not UTF-8, their bytes written as Python does.

    Otherwise one such record ends each worker that is given its partition, as often as it is started. Records are read by the
    client as before; what it cannot read is read again from there on by its slower twin in Python.
    """
    from aiokafka.consumer import fetcher  # noqa: PLC0415  # an optional extra
    from aiokafka.errors import CorruptRecordException  # noqa: PLC0415
    from aiokafka.record.default_records import _DefaultRecordBatchPy  # noqa: PLC0415
    from aiokafka.record.memory_records import _MemoryRecordsPy  # noqa: PLC0415

    as_before: Any = fetcher.MemoryRecords
    partition_records: Any = fetcher.PartitionRecords
    memory_records: Any = _MemoryRecordsPy
    record_batch: Any = _DefaultRecordBatchPy

    class Forgiving(record_batch):  # type: ignore[misc]  # final for type checkers
        """One batch."""

        def _maybe_uncompress(self) -> None:
            super()._maybe_uncompress()
            self._buffer: Any = _Bytes(self._buffer)

    class ForgivingRecords(memory_records):  # type: ignore[misc]  # likewise
        """What was fetched of a partition."""

        def next_batch(self) -> Any:
            given = self._next_slice
            batch = super().next_batch()
            # Older formats have no headers.
            return Forgiving(given) if batch is not None and given[self.MAGIC_OFFSET] >= _WITH_HEADERS else batch

    class Kept:
        """What was fetched, as the client reads it; its bytes are kept until then."""

        def __init__(self, data: bytes) -> None:
            self.data = data
            self._records = as_before(data)
            self.has_next, self.next_batch = self._records.has_next, self._records.next_batch

        def size_in_bytes(self) -> int:
            return len(self.data)

    class Records(partition_records):  # type: ignore[misc]  # untyped
        """The records of a partition one by one."""

        def _unpack_records(self) -> Iterator[Any]:
            try:
                yield from super()._unpack_records()
            except (UnicodeDecodeError, CorruptRecordException) as error:
                if not isinstance(error if isinstance(error, UnicodeDecodeError) else error.__cause__, UnicodeDecodeError):
                    raise
                # Batches that were read to their end are read again, and take `next_fetch_offset` back.
                given = self.next_fetch_offset
                self._records: Any = ForgivingRecords(self._records.data)
                yield from (record for record in super()._unpack_records() if record.offset >= given)

    fetcher.MemoryRecords = Kept
    fetcher.PartitionRecords = Records


class _Bytes(bytes):
    """Bytes whose parts are text whatever they are."""

    def __getitem__(self, place: Any) -> Any:
        part = super().__getitem__(place)
        return _Bytes(part) if isinstance(place, slice) else part

    def decode(self, encoding: str = "utf-8", errors: str = "backslashreplace") -> str:
        return super().decode(encoding, errors)

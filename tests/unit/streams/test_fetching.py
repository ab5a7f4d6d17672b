"""Records as other clients write them: names of headers that are no text stop nobody."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from streams.fetching import take_any_header


class Raw(str):
    """A name that another client sends as these bytes."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return b"\xff\xfe"


def batch(first: int, headers: list[list[tuple[str, bytes]]], *, compression: int = 0) -> bytes:
    """Records with these headers, as a broker gives them."""
    builder = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, -1, 1_000_000)
    for number, each in enumerate(headers):
        builder.append(number, timestamp=0, key=b"k", value=b"v%d" % (first + number), headers=each)
    built = builder.build()
    built[:8] = first.to_bytes(8, "big")  # not a part of what is checked
    return bytes(built)


@pytest.mark.parametrize("compression", [0, 1], ids=["plain", "gzip"])
def test_a_header_whose_name_is_no_text_is_read_with_all_that_is_around_it(compression: int) -> None:
    take_any_header()
    take_any_header()
    good = [("banyan-schema", b"turn/1")]
    data = (
        batch(0, [good, good])
        + batch(2, [good, [*good, (Raw("x"), b"\x00\xff")], good], compression=compression)
        + batch(5, [good], compression=compression)
    )
    found = list(fetcher.PartitionRecords(TopicPartition("t", 0), fetcher.MemoryRecords(data), [], 1, None, None, True, 0))
    assert [(record.offset, record.value) for record in found] == [(number, b"v%d" % number) for number in range(1, 6)]
    assert [dict(record.headers) for record in found if len(record.headers) > 1] == [
        {"banyan-schema": b"turn/1", "\\xff\\xfe": b"\x00\xff"}
    ]


def test_what_is_damaged_is_not_taken_for_that() -> None:
    take_any_header()
    damaged = bytearray(batch(0, [[("banyan-schema", b"turn/1")]]))
    damaged[-3] ^= 1
    with pytest.raises(Exception, match="Invalid CRC"):
        list(fetcher.PartitionRecords(TopicPartition("t", 0), fetcher.MemoryRecords(bytes(damaged)), [], 0, None, None, True, 0))

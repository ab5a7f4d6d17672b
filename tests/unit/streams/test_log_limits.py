"""Libraries cannot flood the log."""

from __future__ import annotations

import logging

from streams.log_limits import AT_ONCE, EVERY, RepeatFilter


def record(name: str, line: int = 1, level: int = logging.ERROR) -> logging.LogRecord:
    return logging.LogRecord(name, level, "sender.py", line, "cannot send %d", (7,), None)


def test_a_flood_is_held_back_and_counted() -> None:
    now = 0.0
    limit = RepeatFilter(now=lambda: now)
    assert sum(limit.filter(record("aiokafka.producer")) for _ in range(1_000)) == AT_ONCE
    now = EVERY
    after = record("aiokafka.producer")
    assert limit.filter(after)
    assert after.getMessage() == f"cannot send 7 [and {1_000 - AT_ONCE} more like it in 10 s]"


def test_another_message_and_our_own_pass() -> None:
    limit = RepeatFilter(now=lambda: 0.0)
    for _ in range(100):
        limit.filter(record("aiokafka.producer"))
    assert limit.filter(record("aiokafka.producer", line=2))
    assert limit.filter(record("aiokafka.consumer"))
    assert all(limit.filter(record("streams.worker")) for _ in range(100))


def test_what_is_rare_passes_as_it_is() -> None:
    now = 0.0
    limit = RepeatFilter(now=lambda: now)
    for _ in range(20):
        one = record("faust.transport")
        assert limit.filter(one)
        assert one.getMessage() == "cannot send 7"
        now += EVERY

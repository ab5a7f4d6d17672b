"""`banyan produce` that ends in the middle says after which line, and goes on there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import pytest

from memory.records import Record
from memory.settings import IngestSettings
from streams.broker import BrokerUnavailableError
from streams.cli.common import Session
from streams.cli.feed import Feed
from streams.cli.produce import BATCH_RECORDS, _place, _Sending
from streams.cli.reading import open_inputs
from streams.setting_tables import KafkaSettings
from streams.topics import topics
from tests.fakes.producer import FakeProducer


class GoesAway(FakeProducer):
    """Takes some batches and then none."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches

    async def send(self, messages: Any) -> None:
        given = list(messages)
        if not self.batches:
            raise BrokerUnavailableError("away")
        self.batches -= 1
        await super().send(given)


def written(path: Path, first: int, count: int) -> str:
    path.write_text("".join(f'{{"tree":"t","id":"{number}","text":"a"}}\n\n' for number in range(first, first + count)))
    return str(path)


def ids(producer: FakeProducer) -> list[int]:
    return [int(json.loads(message.value or b"")["id"]) for message in producer.sent]


async def test_what_ends_in_the_middle_goes_on_there_and_every_record_is_sent_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = topics(KafkaSettings())
    files = [written(tmp_path / "a.jsonl", 0, 300), written(tmp_path / "b.jsonl", 300, 700)]
    first = GoesAway(batches=1)
    with pytest.raises(BrokerUnavailableError):
        await _Sending(Session(as_json=True), first, names).run(open_inputs(files), tree=None, after=None, stop=asyncio.Event())
    said = json.loads(capfd.readouterr().out)
    assert (said["sent"], said["interrupted"]) == (BATCH_RECORDS, False)
    assert said["after"] == f"{files[1]}:{2 * (BATCH_RECORDS - 300) - 1}"  # every second line is blank

    begin = _place(said["after"], files)
    second = FakeProducer()
    await _Sending(Session(as_json=True), second, names).run(open_inputs(files), tree=None, after=begin, stop=asyncio.Event())
    assert json.loads(capfd.readouterr().out)["after"] is None
    assert ids(first) + ids(second) == list(range(1_000))


async def test_inputs_before_it_and_lines_up_to_it_are_passed_over(tmp_path: Path) -> None:
    files = [written(tmp_path / "a.jsonl", 0, 3), written(tmp_path / "b.jsonl", 3, 3)]
    empty: list[object] = []

    async def given(after: tuple[str, int] | None) -> list[str]:
        feed = Feed(open_inputs(files), tree=None, limits=IngestSettings(), on_refused=print, on_empty=empty.append, after=after)
        found: list[Record] = []
        while not feed.ended:
            found += [record async for record in feed.records(asyncio.Event())]
        return [record.id for record in found]

    assert await given(None) == ["0", "1", "2", "3", "4", "5"]
    assert await given((files[0], 0)) == ["0", "1", "2", "3", "4", "5"]
    assert await given((files[0], 3)) == ["2", "3", "4", "5"]
    assert await given((files[1], 1)) == ["4", "5"]
    assert await given((files[1], 99)) == []
    assert empty == []


@pytest.mark.parametrize("text", ["", "a.jsonl", "a.jsonl:", "a.jsonl:-1", "a.jsonl:x", "c.jsonl:3", ":3"])
def test_a_place_in_none_of_the_files_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        _place(text, ["a.jsonl", "b.jsonl"])
    assert _place("b.jsonl:7", ["a.jsonl", "b.jsonl"]) == ("b.jsonl", 7)

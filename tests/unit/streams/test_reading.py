"""Files to lines: whatever the file, each line once, in bounded memory, and a word about what is no text."""

from __future__ import annotations

import gzip
import io
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.cli import reading
from streams.cli.reading import Input, InputError, Line, open_inputs


def lines(path: Path, limit: int = 1_000) -> list[Line]:
    [source] = open_inputs([str(path)])
    return [line for block in source.blocks(limit) for line in block]


def test_lines_have_numbers_and_blank_ones_count_but_are_not_given(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"one\n\n  \r\ntwo\r\nthree")
    assert [(line.number, line.data) for line in lines(file)] == [(1, b"one"), (4, b"two\r"), (5, b"three")]
    assert lines(file)[-1].position == file.stat().st_size


def test_gzip_is_seen_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert [line.data for line in lines(file)] == [b"one", b"two"]


def test_cut_off_gzip_gives_what_is_there_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    content = os.urandom(200_000).hex().encode()
    whole = gzip.compress(b"first\n" + content + b"\nlast\n")
    file.write_bytes(whole[: len(whole) // 2])
    found = lines(file, limit=10_000_000)
    assert found[0].data == b"first"
    assert found[-1].data is None
    assert found[-1].reason == "record: cannot be read on: the compressed data ends early"


@given(st.lists(st.binary(max_size=50).filter(lambda data: b"\n" not in data)), st.integers(1, 20), st.integers(1, 60))
def test_the_size_of_blocks_and_lines_does_not_matter(parts: list[bytes], block: int, limit: int) -> None:
    stream = io.BytesIO(b"\n".join(parts))
    cutter = reading._Cutter(limit)
    found: list[Line] = []
    while True:
        data = stream.read(block)
        found += cutter.cut(data, 0)
        if not data:
            break
    expected = [(number, part) for number, part in enumerate(parts, 1) if part.strip() or len(part) > limit]
    assert [line.number for line in found] == [number for number, _ in expected]
    for line, (_, part) in zip(found, expected, strict=True):
        assert line.data == (part if len(part) <= limit else None)
        assert ("at most" in line.reason) == (len(part) > limit)


def test_a_line_that_is_too_long_is_never_held(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    with file.open("wb") as stream:
        for _ in range(64):
            stream.write(b"x" * 1_048_576)
        stream.write(b"\ngood\n")
    tracemalloc.start()
    found = lines(file, limit=1_048_576)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [line.data for line in found] == [None, b"good"]
    assert "67,108,864 bytes" in found[0].reason
    assert peak < 8 * 1_048_576


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04zip", "zip archive"),
        (b"SQLite format 3\x00", "SQLite"),
        ('{"a":1}'.encode("utf-16"), "UTF-16"),
        (b"\x7fELF\x00\x00\x01", "binary"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
    ],
)
def test_no_text_is_refused_before_anything_is_read(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError, match=said):
        open_inputs([str(file)])


def test_no_text_inside_gzip_is_refused_too(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b"\x7fELF\x00\x00\x01"))
    with pytest.raises(InputError, match="binary"):
        lines(file)


def test_a_record_with_a_raw_nul_is_a_bad_line_and_no_binary_file(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"text":"\x00"}\n')
    assert len(lines(file)) == 1


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        open_inputs([str(tmp_path / "missing")])
    with pytest.raises(InputError, match="is a folder; name the files in it"):
        open_inputs([str(tmp_path)])
    with pytest.raises(InputError, match="once only"):
        open_inputs(["-", "-"])


def test_a_pipe_has_no_size(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert open_inputs([str(fifo)]) == [Input(str(fifo), None)]

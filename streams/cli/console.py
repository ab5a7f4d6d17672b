"""What commands show: results on standard output, everything else on standard error."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

PLAIN_WIDTH = 120
"""Columns where there is no terminal; `COLUMNS` says otherwise."""
_LINE_EVERY_S = 3.0
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Output:
    """
    The two streams of a command.

    Args:
        as_json: standard output carries JSON lines and nothing else.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    @cached_property
    def out(self) -> Console:
        """Standard output, for people."""
        return _console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """Standard error."""
        return _console(stderr=True)

    def emit(self, value: Any) -> None:
        """One line of JSON on standard output."""
        import msgspec  # noqa: PLC0415  # not needed for --help

        self.write(msgspec.json.encode(value) + b"\n")

    def write(self, data: bytes) -> None:
        """Bytes on standard output, as they are."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def show(self, renderable: RenderableType = "", *, whole_lines: bool = False) -> None:
        """
        A result for people; nothing when JSON was asked for.

        Args:
            renderable: a string may carry rich's markup.
            whole_lines: break no line, however long, so that it can be searched and cut by other programs.
        """
        if self.as_json:
            return
        if self.out.is_terminal:
            self.out.print(renderable, soft_wrap=whole_lines)
            return
        with self.out.capture() as captured:
            self.out.print(renderable, soft_wrap=whole_lines)
        # Cells are filled up with blanks, which only a terminal wants.
        self.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()).encode("utf-8", "replace"))

    def note(self, message: str) -> None:
        """A line on standard error."""
        self.err.print(printable(message), soft_wrap=True, markup=False, highlight=False)

    def warn(self, message: str) -> None:
        """Something to look at, on standard error."""
        self.note(f"warning: {message}")

    @contextmanager
    def progress(self, label: str, *, total: int | None, of_bytes: bool = False) -> Iterator[Progress]:
        """
        Show how a long piece of work goes on: a bar on a terminal, else a line every few seconds.

        Args:
            label: what is being done, in a word or two.
            total: units of work, or None when unknown.
            of_bytes: the units are bytes and mean nothing to the reader.
        """
        drawn = self.err.is_terminal and not self.err.is_dumb_terminal
        progress = _Bar(self.err, label, total, of_bytes=of_bytes) if drawn else _Lines(self, label, total)
        try:
            yield progress
        finally:
            progress.close()


class Progress:
    """How far a piece of work is."""

    def update(self, done: int, *, total: int | None = None, detail: str = "") -> None:
        """
        Say how far it is.

        Args:
            done: units of work that are done.
            total: units altogether, when that has changed.
            detail: what else to show, e.g. `412 accepted`.
        """

    def close(self) -> None:
        """The work has ended, one way or the other."""


class _Bar(Progress):
    def __init__(self, console: Console, label: str, total: int | None, *, of_bytes: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.progress import Progress as RichProgress  # noqa: PLC0415

        count = [TaskProgressColumn()] if of_bytes else [MofNCompleteColumn()]
        columns = [TextColumn("{task.description}"), BarColumn(bar_width=20), *count, TimeRemainingColumn(compact=True)]
        self._progress: RichProgress = RichProgress(
            *columns, TextColumn("[dim]{task.fields[detail]}"), console=console, transient=True
        )
        self._task: TaskID = self._progress.add_task(label, total=total, detail="")
        self._progress.start()

    def update(self, done: int, *, total: int | None = None, detail: str = "") -> None:
        if total is not None:
            self._progress.update(self._task, total=total)
        self._progress.update(self._task, completed=done, detail=detail)

    def close(self) -> None:
        self._progress.stop()


class _Lines(Progress):
    def __init__(self, output: Output, label: str, total: int | None) -> None:
        self._output = output
        self._label = label
        self._total = total
        self._started = self._said = time.monotonic()

    def update(self, done: int, *, total: int | None = None, detail: str = "") -> None:
        self._total = self._total if total is None else total
        now = time.monotonic()
        if now - self._said < _LINE_EVERY_S:
            return
        self._said = now
        parts = [self._label]
        if self._total:
            parts.append(f"{min(1.0, done / self._total):.0%}")
            if 0 < done < self._total:
                parts.append(f"{duration((now - self._started) * (self._total - done) / done)} left")
        self._output.note(", ".join([*parts, detail] if detail else parts))


def printable(text: str) -> str:
    """The text without control characters, so that what was ingested cannot command the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """The text on one line, printable."""
    return printable(" ".join(text.split()))


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 leaf`, `2 leaves`."""
    plural = {"leaf": "leaves", "summary": "summaries", "query": "queries", "entry": "entries"}.get(noun, f"{noun}s")
    return f"{count:,} {noun if count == 1 else plural}"


def duration(seconds: float) -> str:
    """Seconds as people say them: `0.8 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def date(at: datetime | None) -> str:
    """The day of a time, or nothing."""
    return at.date().isoformat() if at is not None else ""  # strftime writes the year 1 without its zeros


def _console(*, stderr: bool) -> Console:
    from rich.console import Console  # noqa: PLC0415  # 80 ms that --help and --json need not

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PLAIN_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, emoji=False)

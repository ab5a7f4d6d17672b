"""Lines to records, read ahead in a thread of its own so that a slow pipe never holds up what has been read."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from memory.errors import RecordError
from memory.records import Record
from memory.results import EventResult
from memory.settings import IngestSettings
from streams.cli.reading import Input, Line
from streams.events import RECORD_BYTES_MAX, decode

_BLOCKS_AHEAD = 4
"""Bounds what is held: four blocks of 64 KB, or of one long line each."""


_LINGER_S = 0.2
"""A pipe that is silent for that long gets what it has sent committed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record comes from."""

    file: str
    line: int
    position: int
    """Bytes of all inputs read up to here."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class _Taken:
    place: Place
    record: Record | None
    reason: str


class Feed:
    """
    The records of some files, in order.

    Args:
        inputs: what to read.
        tree: for records that name none.
        limits: longest texts.
        on_refused: told of each line that is no record: where, and `field: reason`.
        on_empty: told of each input without a line.
        after: an input's label and a line of it: what comes before its end is passed over unread.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        *,
        tree: str | None,
        limits: IngestSettings,
        on_refused: Callable[[Place, str], None],
        on_empty: Callable[[Input], None],
        after: tuple[str, int] | None = None,
    ) -> None:
        self._inputs = inputs
        self._tree = tree
        self._limits = limits
        self._on_refused = on_refused
        self._on_empty = on_empty
        self._after = after
        self._given: defaultdict[tuple[str, str], deque[Place]] = defaultdict(deque)
        self._room = threading.Semaphore(_BLOCKS_AHEAD)
        self._blocks: asyncio.Queue[list[_Taken] | Exception | None] | None = None
        self.ended = False
        """Whether `records` has given the last one."""

    async def records(self, stop: asyncio.Event) -> AsyncIterator[Record]:
        """
        The records as they come, until the end, until `stop` is set, or until nothing has come for a moment.

        The last keeps the lines of a slow pipe from waiting for a batch to be full: unless `ended`, ask again.

        Raises:
            InputError: an input turned out to be no text.
        """
        blocks = self._started()
        stopped = asyncio.ensure_future(stop.wait())
        given = False
        try:
            while not stop.is_set():
                coming = asyncio.ensure_future(blocks.get())
                await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED, timeout=_LINGER_S if given else None)
                if not coming.done():
                    coming.cancel()
                    return
                block = coming.result()
                if isinstance(block, Exception):
                    raise block
                if block is None:
                    self.ended = True
                    return
                self._room.release()
                for taken in block:
                    if stop.is_set():
                        return
                    if taken.record is None:
                        self._on_refused(taken.place, taken.reason)
                    else:
                        self._given[taken.record.tree, taken.record.id].append(taken.place)
                        given = True
                        yield taken.record
        finally:
            stopped.cancel()

    def settle(self, results: Sequence[EventResult]) -> list[tuple[Place, EventResult]]:
        """Where each of the next results comes from; those of one id come in the order of its records."""
        settled = []
        for result in results:
            key = (result.tree, result.id)
            settled.append((self._given[key].popleft(), result))
            if not self._given[key]:
                del self._given[key]
        return settled

    def _started(self) -> asyncio.Queue[list[_Taken] | Exception | None]:
        if self._blocks is None:
            self._blocks = asyncio.Queue()
            arguments = (asyncio.get_running_loop(), self._blocks)
            # A daemon: nobody can wake a thread that waits for a terminal or a pipe, and the process must be able to end.
            threading.Thread(target=self._read, args=arguments, name="banyan-read", daemon=True).start()
        return self._blocks

    def _read(self, loop: asyncio.AbstractEventLoop, blocks: asyncio.Queue[list[_Taken] | Exception | None]) -> None:
        def put(block: list[_Taken] | Exception | None) -> None:
            loop.call_soon_threadsafe(blocks.put_nowait, block)

        try:
            base = 0
            for each in self._inputs:
                if self._after is not None and self._after[0] != each.label:
                    base += each.size or 0
                    continue
                last, self._after = 0 if self._after is None else self._after[1], None
                empty = True
                for block in each.blocks(RECORD_BYTES_MAX):
                    empty = empty and not block
                    lines = [line for line in block if line.number > last]
                    if lines:
                        self._room.acquire()
                        put([self._take(each, line, base) for line in lines])
                if empty:
                    loop.call_soon_threadsafe(self._on_empty, each)
                base += each.size or 0
            put(None)
        except RuntimeError:
            if not loop.is_closed():
                raise
        except Exception as error:  # noqa: BLE001  # handed over to whoever takes the records
            put(error)

    def _take(self, source: Input, line: Line, base: int) -> _Taken:
        place = Place(source.label, line.number, base + line.position)
        if line.data is None:
            return _Taken(place, None, line.reason)
        try:
            return _Taken(place, decode(line.data, tree=self._tree, limits=self._limits), "")
        except RecordError as error:
            unnamed = self._tree is None and (error.field, error.reason) == ("tree", "is missing")
            return _Taken(place, None, f"{error}; --tree names one for records without" if unnamed else str(error))

"""
The same memory without `await`, for scripts and notebooks: a loop of its own runs in a thread.

    from memory import open_local_sync

    with open_local_sync("my-memory") as memory:
        memory.ingest([{"tree": "me", "id": "t1", "text": "I moved to Porto in May."}])
        print(memory.search("me", "Where do I live?").hits[0].text)
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from memory.errors import ClosedError
from memory.local import LocalMemory, open_local
from memory.model import TreeInfo
from memory.records import Feedback, Record
from memory.results import CheckReport, EventResult, ForgetReport, Profile, SearchAnswer, Speaker, TreeNode, TreeReport
from memory.service.query import Context

T = TypeVar("T")


_END_WAIT_S = 1.0
"""For the tasks of a memory that nobody closed, at the interpreter's end."""


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """End a loop whose owner is gone, or the process with it: what still runs there would be complained about."""

    def cancel() -> None:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        asyncio.gather(*tasks, return_exceptions=True).add_done_callback(lambda _: loop.stop())

    loop.call_soon_threadsafe(cancel)
    if threading.current_thread() is not thread:
        thread.join(_END_WAIT_S)


class _LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="banyan-loop", daemon=True)
        self._thread.start()
        self._stopped = False
        self._gate = threading.Lock()
        self._unclosed = weakref.finalize(self, _end, self._loop, self._thread)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """
        Run a coroutine there and wait for it; an interrupt cancels it.

        Raises:
            ClosedError: the loop was ended.
        """
        with self._gate:
            if self._stopped:
                work.close()
                raise ClosedError("this memory was closed; open it again with open_local_sync")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        with self._gate:
            self._stopped = True
        self._unclosed.detach()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def open_local_sync(path: str | Path | None = None, **options: Any) -> LocalMemorySync:
    """
    `memory.open_local` for callers without a loop, or inside one that is busy (a notebook).

    Args:
        path: as there.
        options: as there.
    """
    loop = _LoopThread()
    try:
        return LocalMemorySync(loop, loop.run(open_local(path, **options)))
    except BaseException:
        loop.stop()
        raise


class LocalMemorySync:
    """`LocalMemory`, each call waited for; after `close` it raises `ClosedError`. Safe to use from several threads."""

    def __init__(self, loop: _LoopThread, memory: LocalMemory) -> None:
        self._loop = loop
        self._memory = memory
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def ingest(self, records: Iterable[Record | Mapping[str, Any]], *, tree: str | None = None) -> list[EventResult]:
        """See `LocalMemory.ingest`."""
        return self._loop.run(self._memory.ingest(records, tree=tree))

    def feedback(self, feedback: Iterable[Feedback | Mapping[str, Any]], *, tree: str | None = None) -> list[EventResult]:
        """See `LocalMemory.feedback`."""
        return self._loop.run(self._memory.feedback(feedback, tree=tree))

    def forget(self, tree: str, **options: Any) -> ForgetReport:
        """See `LocalMemory.forget`."""
        return self._loop.run(self._memory.forget(tree, **options))

    def search(self, tree: str, query: str, **options: Any) -> SearchAnswer:
        """See `LocalMemory.search`."""
        return self._loop.run(self._memory.search(tree, query, **options))

    def context(self, tree: str, query: str, *, tokens: int, **options: Any) -> Context:
        """See `LocalMemory.context`."""
        return self._loop.run(self._memory.context(tree, query, tokens=tokens, **options))

    def speakers(self, tree: str) -> list[Speaker]:
        """See `LocalMemory.speakers`."""
        return self._loop.run(self._memory.speakers(tree))

    def profile(self, tree: str, speaker: str, *, facts: int = 20) -> Profile | None:
        """See `LocalMemory.profile`."""
        return self._loop.run(self._memory.profile(tree, speaker, facts=facts))

    def tree(self, tree: str, **options: Any) -> TreeNode:
        """See `LocalMemory.tree`."""
        return self._loop.run(self._memory.tree(tree, **options))

    def trees(self) -> list[TreeInfo]:
        """See `LocalMemory.trees`."""
        return self._loop.run(self._memory.trees())

    def stats(self, tree: str) -> TreeReport:
        """See `LocalMemory.stats`."""
        return self._loop.run(self._memory.stats(tree))

    def check(self, tree: str) -> CheckReport:
        """See `LocalMemory.check`."""
        return self._loop.run(self._memory.check(tree))

    def export(self, tree: str) -> Iterator[bytes]:
        """See `LocalMemory.export`."""
        lines = self._memory.export(tree)
        while True:
            try:
                yield self._loop.run(_next(lines))
            except StopAsyncIteration:
                return

    def import_(self, lines: Iterable[bytes], *, tree: str | None = None) -> TreeInfo:
        """See `LocalMemory.import_`."""
        return self._loop.run(self._memory.import_(lines, tree=tree))

    def fresh(self, tree: str | None = None, **options: Any) -> bool:
        """See `LocalMemory.fresh`."""
        return self._loop.run(self._memory.fresh(tree, **options))

    def close(self) -> None:
        """See `LocalMemory.close`; idempotent."""
        if not self._closed:
            self._closed = True
            try:
                self._loop.run(self._memory.close())
            finally:
                self._loop.stop()


async def _next(lines: Any) -> bytes:
    line: bytes = await anext(lines)
    return line

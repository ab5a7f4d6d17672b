"""The index of one machine, for any number of processes."""

from __future__ import annotations

import asyncio
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from memory.adapters.embedded.index import lexical, segment
from memory.adapters.embedded.index.appending import NOWHERE, Append, Reach
from memory.adapters.embedded.index.file import SegmentFile
from memory.adapters.embedded.index.heap import give_back
from memory.adapters.embedded.index.lexical import Tokenize
from memory.adapters.embedded.index.tree import LoadedTree
from memory.errors import QueryError
from memory.model import NodeId, TreeId
from memory.ports import index as ports
from memory.ports.index import Candidates, IndexAnswer, IndexEntry, IndexQuery, IndexUpdate

FORMAT = 3
"""Of segments and tables; a file of another format is made anew."""
PROBE = "Ana's 2 naïve cafés were running—not far from Łódź, on 2026-05-08! U.S. e-mails: 東京 don't"
"""What the tokenizer makes of this tells whether a file was made with the same tokenizer."""
THREADS = 4
NONE = Candidates.of(())
TIDY_AFTER = 64
"""Updates after which a tree's segments are merged: after eight of few rows each, merging took twice the time of the updates."""
LARGE = 16_000_000
"""Bytes of a tree whose loading leaves much behind."""
SEGMENTS_UNTIDY = 100
"""A tree read from more segments is tidied, whoever left it so."""

TOGETHER_MAX = 8
"""Queries that are searched together: more share little more, and wait for one another longer."""

_Asked = tuple[IndexQuery, "asyncio.Future[IndexAnswer]"]
P = ParamSpec("P")
T = TypeVar("T")


class EmbeddedNodeIndex(ports.NodeIndex):
    """
    Exact vector search and BM25 in memory, kept in one SQLite file.

    Every process holds the trees that it searches in memory, the least recently used leaving first, and takes in what others
    wrote before it answers. All work is done in threads of its own.

    BM25 counts each distinct term of a query once; its statistics are those of the tree's nodes that have a text.
    Vectors are kept as float16: components it cannot represent are rounded.

    Args:
        file: where segments are kept.
        tokenize: a text's terms.
        k1: BM25's saturation of repeated terms, 0 or more.
        b: BM25's share of length normalisation, in [0, 1].
        memory_bytes_max: memory for searched trees, all together; the tree in use always fits.
    """

    def __init__(self, file: SegmentFile, *, tokenize: Tokenize, k1: float, b: float, memory_bytes_max: int) -> None:
        self._file = file
        self._tokenize = tokenize
        self._k1, self._b = k1, b
        self._memory_bytes_max = memory_bytes_max
        self._trees: OrderedDict[TreeId, _Held] = OrderedDict()
        self._trees_lock = threading.Lock()
        # A thread that searches scans too: with one core it does so alone.
        self._helpers = (os.cpu_count() or 1) - 1
        self._scanner = ThreadPoolExecutor(max(self._helpers, 1), thread_name_prefix="banyan-scan")
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="banyan-index")
        self._waiting: dict[TreeId, list[_Asked]] = {}
        """Queries by tree that is being searched: they come next."""
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: Path | None,
        *,
        tokenize: Tokenize = lexical.words,
        k1: float = 0.9,
        b: float = 0.4,
        memory_bytes_max: int = 4 * 2**30,
        busy_wait: timedelta = timedelta(seconds=30),
    ) -> Self:
        """
        Open the index in a file, made when missing, made anew when damaged or made with another tokenizer.

        Args:
            path: the file; None for one of this index alone, which is gone with it.
            tokenize: a text's terms, lower-cased, stemmed, without stop words, as wanted; pure.
            k1: BM25's saturation of repeated terms, 0 or more. May differ from one opening to the next.
            b: BM25's share of length normalisation, in [0, 1]. May differ from one opening to the next.
            memory_bytes_max: memory for searched trees, all together; about 2.5 KB a node at 384 dimensions.
            busy_wait: how long to wait for another process that writes the file.

        Raises:
            StoreUnavailableError: the file cannot be opened or written.
            StoreBusyError: another process holds it longer than `busy_wait`.
        """
        form = f"{FORMAT}:{zlib.crc32(chr(0).join(tokenize(PROBE)).encode()):08x}"
        file = await asyncio.to_thread(lambda: SegmentFile(path, form=form, busy_wait=busy_wait))
        return cls(file, tokenize=tokenize, k1=k1, b=b, memory_bytes_max=memory_bytes_max)

    @property
    def passing(self) -> bool:  # noqa: D102
        return self._file.passing

    async def covered(self, tree: TreeId) -> int:  # noqa: D102
        return (await self._run(self._file.reach, tree)).seq

    async def update(  # noqa: D102
        self,
        tree: TreeId,
        *,
        after: int,
        seq: int,
        upserts: Sequence[IndexEntry],
        removes: Sequence[NodeId] = (),
        stamp: str = "",
    ) -> bool:
        update = IndexUpdate(tree=tree, after=after, seq=seq, upserts=upserts, removes=removes, stamp=stamp)
        [done] = await self._run(self._update, [update])
        return done

    async def standing(self, trees: Sequence[TreeId]) -> dict[TreeId, tuple[int, str]]:  # noqa: D102
        return dict(zip(trees, await self._run(self._file.standing, trees), strict=True))

    async def update_all(self, updates: Sequence[IndexUpdate]) -> list[bool]:  # noqa: D102
        return await self._run(self._update, updates)

    async def stamp(self, tree: TreeId) -> str:  # noqa: D102
        return await self._run(self._file.stamp, tree)

    async def search(self, tree: TreeId, query: IndexQuery) -> IndexAnswer:  # noqa: D102
        # One thread at a time searches a tree. What is asked meanwhile is then searched together: rows are read once for all.
        answer: asyncio.Future[IndexAnswer] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(tree)
        if waiting is None:
            self._waiting[tree] = []
            self._begin(tree, [(query, answer)])
        else:
            waiting.append((query, answer))
        return await answer

    def _begin(self, tree: TreeId, asked: Sequence[_Asked]) -> None:
        queries = [query for query, _ in asked]
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, self._search, tree, queries)
        except RuntimeError as error:  # closed
            del self._waiting[tree]
            _tell(asked, [error] * len(asked))
        else:
            running.add_done_callback(partial(self._ended, tree, asked))

    def _ended(self, tree: TreeId, asked: Sequence[_Asked], done: asyncio.Future[list[IndexAnswer | QueryError]]) -> None:
        waiting = [each for each in self._waiting[tree] if not each[1].done()]
        if waiting:
            self._waiting[tree] = waiting[TOGETHER_MAX:]
            self._begin(tree, waiting[:TOGETHER_MAX])
        else:
            del self._waiting[tree]
        error = done.exception()
        _tell(asked, done.result() if error is None else [error] * len(asked))

    async def score(self, tree: TreeId, query: IndexQuery, nodes: Sequence[NodeId]) -> Candidates:  # noqa: D102
        return await self._run(self._score, tree, query, nodes)

    async def speakers(self, tree: TreeId, *, limit: int) -> frozenset[str]:  # noqa: D102
        return await self._run(self._speakers, tree, limit)

    async def size(self, tree: TreeId) -> int:  # noqa: D102
        return await self._run(self._size, tree)

    async def adopt(self, tree: TreeId, made: TreeId) -> bool:  # noqa: D102
        return await self._run(self._adopt, tree, made)

    async def expunge(self, tree: TreeId) -> None:  # noqa: D102
        await self._run(self._expunge, tree)

    async def drop(self, tree: TreeId) -> None:  # noqa: D102
        await self._run(self._drop, tree)

    async def close(self) -> None:  # noqa: D102
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._pool.shutdown)
            self._scanner.shutdown()
            self._file.close()
            self._trees.clear()

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(*args, **kwargs))

    # ------------------------------------------------------------------------------------------------------- in a thread

    def _update(self, updates: Sequence[IndexUpdate]) -> list[bool]:
        done = self._file.append([self._append(update) for update in updates])
        for update, fitted in zip(updates, done, strict=True):
            if not fitted:
                continue
            held = self._held(update.tree)
            with held.lock:
                if held.loaded is not None:
                    self._current(update.tree, held)
                held.untidy += 1
                self._tidy_soon(update.tree, held)
        return done

    def _append(self, update: IndexUpdate) -> Append:
        upserts, removes = update.upserts, update.removes
        dimension = len(upserts[0].vector) if upserts else 0

        def made() -> segment.Segment | None:
            if not upserts and not removes:
                return None
            return segment.build(upserts, removes, seq=update.seq, dimension=dimension, tokenize=self._tokenize)

        return Append(tree=update.tree, after=update.after, seq=update.seq, dimension=dimension, segment=made, stamp=update.stamp)

    def _search(self, tree: TreeId, queries: Sequence[IndexQuery]) -> list[IndexAnswer | QueryError]:
        held = self._held(tree)
        with held.lock:
            loaded = self._current(tree, held)
            if loaded is None:
                return [IndexAnswer(seq=0, found=NONE, around=NONE)] * len(queries)
            return [
                answer if isinstance(answer, QueryError) else IndexAnswer(seq=loaded.seq, found=answer[0], around=answer[1])
                for answer in loaded.search(queries)
            ]

    def _score(self, tree: TreeId, query: IndexQuery, nodes: Sequence[NodeId]) -> Candidates:
        held = self._held(tree)
        with held.lock:
            loaded = self._current(tree, held)
            return NONE if loaded is None else loaded.score(query, nodes)

    def _speakers(self, tree: TreeId, limit: int) -> frozenset[str]:
        held = self._held(tree)
        with held.lock:
            loaded = self._current(tree, held)
            return frozenset() if loaded is None else loaded.speakers(limit)

    def _size(self, tree: TreeId) -> int:
        held = self._held(tree)
        with held.lock:
            loaded = self._current(tree, held)
            return 0 if loaded is None else loaded.size

    def _adopt(self, tree: TreeId, made: TreeId) -> bool:
        done = self._file.adopt(tree, made)
        if done:
            with self._trees_lock:
                self._trees.pop(made, None)
        return done

    def _expunge(self, tree: TreeId) -> None:
        self._file.expunge(tree)
        held = self._held(tree)
        with held.lock:
            # Rows that are gone are only passed over there; the next question reads the tree without them.
            held.loaded = None

    def _drop(self, tree: TreeId) -> None:
        self._file.drop(tree)
        with self._trees_lock:
            self._trees.pop(tree, None)

    def _tidy_soon(self, tree: TreeId, held: _Held) -> None:
        if held.untidy >= TIDY_AFTER and (held.tidying is None or held.tidying.done()) and not self._closed:
            held.untidy = 0
            held.tidying = self._pool.submit(self._tidy, tree, held)

    def _tidy(self, tree: TreeId, held: _Held) -> None:
        """Merge segments as long as that is due, then load the tree again, aside, when many of its slots are dead."""
        while not self._closed and self._file.tidy(tree):
            pass
        with held.lock:
            wasteful = held.loaded is not None and held.loaded.wasteful
        if wasteful and not self._closed:
            reach, loaded, _ = self._loaded(tree)
            with held.lock:
                held.loaded, held.incarnation = loaded, reach.incarnation
            give_back()

    def _held(self, tree: TreeId) -> _Held:
        with self._trees_lock:
            held = self._trees.setdefault(tree, _Held())
            self._trees.move_to_end(tree)
            return held

    def _current(self, tree: TreeId, held: _Held) -> LoadedTree | None:
        """The tree as the file has it now; None when the file does not know it. The caller has the lock."""
        reach = self._file.reach(tree)
        loaded = held.loaded
        if loaded is not None and held.incarnation == reach.incarnation and loaded.seq < reach.seq:
            reach, segments = self._file.since(tree, loaded.seq)
            if held.incarnation == reach.incarnation:
                loaded.apply(segments, reach.seq)
        if loaded is None or held.incarnation != reach.incarnation or loaded.seq != reach.seq:
            reach, loaded, segments_read = (reach, None, 0) if reach == NOWHERE else self._loaded(tree)
            held.loaded, held.incarnation = loaded, reach.incarnation
            if segments_read > SEGMENTS_UNTIDY:
                held.untidy += segments_read
                self._tidy_soon(tree, held)
            self._evict(held)
            if loaded is not None and loaded.nbytes > LARGE:
                give_back()
        return loaded

    def _loaded(self, tree: TreeId) -> tuple[Reach, LoadedTree | None, int]:
        """The tree as the file has it, and the number of segments it was read from."""
        reach, gathered = self._file.whole(tree)
        if gathered is None:
            return reach, None, 0
        loaded = LoadedTree(k1=self._k1, b=self._b, tokenize=self._tokenize, scanner=self._scanner, helpers=self._helpers)
        loaded.load(gathered.segments(), reach.seq)
        return reach, loaded, gathered.parts

    def _evict(self, kept: _Held) -> None:
        """Let go of the trees that were not searched for longest, until the rest fits."""
        with self._trees_lock:
            total = sum(held.nbytes for held in self._trees.values())
            for held in list(self._trees.values()):
                if total <= self._memory_bytes_max:
                    return
                # A tree in use keeps its memory until it is let go at another load.
                if held is not kept and held.loaded is not None and held.lock.acquire(blocking=False):
                    total -= held.nbytes
                    held.loaded = None
                    held.lock.release()


def _tell(asked: Sequence[_Asked], answers: Sequence[IndexAnswer | BaseException]) -> None:
    """Give whoever still waits what there is."""
    for (_, answer), found in zip(asked, answers, strict=True):
        if answer.done():
            continue
        if isinstance(found, BaseException):
            answer.set_exception(found)
        else:
            answer.set_result(found)


class _Held:
    """A tree as this process has it."""

    __slots__ = ("incarnation", "loaded", "lock", "tidying", "untidy")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loaded: LoadedTree | None = None
        self.incarnation = 0
        self.untidy = 0
        """Updates since segments were last merged."""
        self.tidying: Future[None] | None = None

    @property
    def nbytes(self) -> int:
        """Memory taken, roughly."""
        loaded = self.loaded
        return 0 if loaded is None else loaded.nbytes

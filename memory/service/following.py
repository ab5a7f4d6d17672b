"""Keeps the index level with what other processes write, for trees that are asked: a question then finds it level already."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from memory.errors import BanyanError, TransientError
from memory.model import TreeId
from memory.ports.clock import Clock
from memory.service.indexing import Indexing

FOLLOWED = 60.0  # seconds
"""After its last question a tree is followed for so long."""
TREES_MAX = 1_000
"""Of those asked last; all are looked at in one round."""
SLOWER = 1.5
PAUSE_MAX = 0.25  # seconds
"""Between two looks while nothing comes; a question looks for itself."""


class Following:
    """
    Looks for what is new in the trees that were asked lately.

    Args:
        indexing: of this process.
        clock: for pauses.
        pause: seconds between two looks while something comes, above 0.
    """

    def __init__(self, indexing: Indexing, clock: Clock, *, pause: float) -> None:
        self._indexing = indexing
        self._clock = clock
        self._pause = pause
        self._asked: OrderedDict[TreeId, float] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def asked(self, tree: TreeId) -> None:
        """A question was asked of the tree, which exists."""
        self._asked[tree] = self._clock.monotonic()
        self._asked.move_to_end(tree)
        if len(self._asked) > TREES_MAX:
            self._asked.popitem(last=False)

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.ensure_future(self.run())

    async def stop(self) -> None:
        """Look no more; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def run(self) -> None:
        """Look for ever."""
        pause = self._pause
        while True:
            pause = self._pause if await self._look() else min(pause * SLOWER, max(PAUSE_MAX, self._pause))
            await self._clock.sleep(pause)

    async def _look(self) -> bool:
        """Whether there was anything new."""
        until = self._clock.monotonic() - FOLLOWED
        while self._asked and next(iter(self._asked.values())) < until:
            self._asked.popitem(last=False)
        if not self._asked:
            return False
        try:
            return await self._indexing.catch_up_all(list(self._asked))
        except TransientError:
            return False
        except BanyanError:
            # One of the trees cannot be followed. Who asks for it is told why; the others are followed again once they are asked.
            self._asked.clear()
            return False
        except Exception as error:  # noqa: BLE001  # a defect, which would end this task for good without anybody hearing of it
            asyncio.get_running_loop().call_exception_handler(
                {"message": "looking for what is new failed; trees are followed again once they are asked", "exception": error}
            )
            self._asked.clear()
            return False

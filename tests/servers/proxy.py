"""A TCP relay that can lose answers, for tests of what happens when one does not come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Self


class Proxy:
    """
    Relays to a port of this machine.

    `lose(n)`: of the next n answers nothing is passed on; the connection is cut instead, after the server has done what was asked.
    `delay`: seconds that every request takes longer.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._losing = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost = 0
        self.port = 0
        self.delay = 0.0

    def lose(self, answers: int) -> None:
        self._losing = answers

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)

        async def requests() -> None:
            while data := await reader.read(1 << 16):
                if self.delay:
                    await asyncio.sleep(self.delay)
                there_writer.write(data)

        async def answers() -> None:
            while data := await there_reader.read(1 << 16):
                if self._losing:
                    self._losing -= 1
                    self.lost += 1
                    return
                writer.write(data)

        tasks = [asyncio.ensure_future(requests()), asyncio.ensure_future(answers())]
        self._tasks.update(tasks)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.difference_update(tasks)
        writer.close()
        there_writer.close()


@contextlib.asynccontextmanager
async def in_front_of(port: int) -> AsyncIterator[Proxy]:
    """A relay to that port."""
    async with Proxy(port) as proxy:
        yield proxy

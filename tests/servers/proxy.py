"""
A TCP relay that can lose answers and take time, for tests and measurements of what happens then.

`python -m tests.servers.proxy PORT DELAY` relays to a port of this machine in a process of its own; it prints its own port, and
ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Self, cast


class Proxy:
    """
    Relays to a port of this machine.

    `lose(n)`: of the next n answers nothing is passed on; the connection is cut instead, after the server has done what was asked.
    `delay`: seconds that every request takes longer; requests of one connection keep their order.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._losing = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Transport] = set()
        self.lost = 0
        self.port = 0
        self.delay = 0.0

    def lose(self, answers: int) -> None:
        self._losing = answers

    def losing(self) -> bool:
        """Whether the answer that has come is to be lost."""
        if not self._losing:
            return False
        self._losing -= 1
        self.lost += 1
        return True

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Caller(self, self._target), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for transport in list(self._open):
            transport.abort()
        await asyncio.sleep(0)

    def opened(self, transport: asyncio.Transport) -> None:
        self._open.add(transport)

    def closed(self, transport: asyncio.Transport | None) -> None:
        if transport is not None:
            self._open.discard(transport)


class _Side(asyncio.Protocol):
    """One end of a relayed connection; when it is lost, the other is closed."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._proxy.opened(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._proxy.closed(self.transport)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)


class _Caller(_Side):
    """The end of whoever calls."""

    def __init__(self, proxy: Proxy, target: int) -> None:
        super().__init__(proxy)
        self._target = target
        self._early: list[bytes] = []
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, server = await loop.create_connection(lambda: _Server(self._proxy), "127.0.0.1", self._target)
        except OSError:
            assert self.transport is not None
            self.transport.abort()
            return
        self.other, server.other = server, self
        for data in self._early:
            server.write(data)

    def data_received(self, data: bytes) -> None:
        if self._proxy.delay:
            asyncio.get_running_loop().call_later(self._proxy.delay, self._pass_on, data)
        else:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.write(data)


class _Server(_Side):
    """The end of the server."""

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        if not self._proxy.losing():
            self.other.write(data)
            return
        for side in (self, self.other):
            if side.transport is not None:
                side.transport.abort()


@contextlib.asynccontextmanager
async def in_front_of(port: int) -> AsyncIterator[Proxy]:
    """A relay to that port."""
    async with Proxy(port) as proxy:
        yield proxy


@contextmanager
def elsewhere(port: int, delay: float) -> Iterator[int]:
    """The port of a relay in a process of its own."""
    command = [sys.executable, "-m", "tests.servers.proxy", str(port), str(delay)]
    with Popen(command, stdin=PIPE, stdout=PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.communicate()


async def _relay(port: int, delay: float) -> None:
    async with in_front_of(port) as proxy:
        proxy.delay = delay
        print(proxy.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_relay(int(sys.argv[1]), float(sys.argv[2])))

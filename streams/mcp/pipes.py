"""The server on standard input and output, as a program that a host starts."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from mcp.server.stdio import stdio_server

if TYPE_CHECKING:
    import anyio

    from streams.ending import Ending
    from streams.mcp.server import Toolbox

LINE_BYTES_MAX = 1_048_576
"""A message; the longest that a tool takes is a quarter of that."""
_TOO_LONG = "a line of more bytes than are taken"
_AHEAD = 16


async def serve_pipes(toolbox: Toolbox, *, version: str, ending: Ending, grace: timedelta) -> None:
    """
    Serve until the host closes our input, or `ending` is asked for; then answer what is in hand.

    Args:
        toolbox: the tools.
        version: told to hosts.
        ending: that the process is to end.
        grace: how long calls in hand may take then.
    """
    server = toolbox.server(version)
    # The SDK's own reader waits in a thread that nothing can wake, so that a signal would not end the process.
    lines = _Lines(asyncio.get_running_loop())
    async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (read, write):
        serving = asyncio.create_task(server.run(read, write, server.create_initialization_options()), name="banyan-mcp")
        asked = asyncio.Event()
        ending.call(asked.set)
        ended = asyncio.create_task(asked.wait())
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not serving.done():
            await toolbox.idle(grace)
            lines.close()
        with suppress(asyncio.CancelledError):
            await serving


class _Lines:
    """Lines of standard input, read by a thread that does not keep the process from ending; those too long are no message."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        threading.Thread(target=self._read, name="banyan-mcp-input", daemon=True).start()

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        line = await self._queue.get()
        if line is None:
            raise StopAsyncIteration
        self._room.release()
        return line

    def close(self) -> None:
        """Give no more lines."""
        self._queue.put_nowait(None)

    def _read(self) -> None:
        # A descriptor of our own: the standard one is another reader's to close.
        with os.fdopen(os.dup(sys.stdin.fileno()), "rb") as stream, suppress(RuntimeError, OSError):  # the loop has ended
            while data := stream.readline(LINE_BYTES_MAX + 1):
                self._room.acquire()
                line = data.decode("utf-8", "replace")
                if len(data) > LINE_BYTES_MAX:
                    line = _TOO_LONG
                    while data and not data.endswith(b"\n"):
                        data = stream.readline(LINE_BYTES_MAX)
                self._put(line)
            self._put(None)

    def _put(self, line: Any) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, line)

"""Calls that are made at about the same time, sent together: one writing, one reading, one connection for all of them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from hiredis import pack_command
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as NoAnswerError

Argument = str | bytes | int | float
Words = Sequence[Argument]

TOGETHER = 16
"""Calls that are sent together at most: enough to share the cost of a connection's turn (a third of a call's), few enough that the
server works on one lot while the process prepares the next."""


class Pipe:
    """
    Sends commands to one server, those that are waiting in the same turn of the event loop together.

    Commands of different callers may overtake one another; a caller that awaits one before it sends the next keeps its order. A
    caller that is cancelled does not keep its command from being run, nor disturb the others that were sent with it.

    Args:
        pool: of connections without a time-out of their own; the pipe keeps those it has used.
        at_once: connections at most; more lots wait.
        timeout: seconds within which a lot must be connected, sent and answered.
    """

    def __init__(self, pool: Any, *, at_once: int, timeout: float) -> None:
        self._pool = pool
        self._slots = asyncio.Semaphore(at_once)
        self._timeout = timeout
        self._idle: list[Any] = []
        self._waiting: deque[tuple[Words, asyncio.Future[Any]]] = deque()
        self._coming = 0
        """Room in the lots that are about to be sent."""
        self._sending: set[asyncio.Task[None]] = set()
        self.round_trips = 0
        """Lots sent."""
        self.calls = 0
        """Commands in them."""

    async def __call__(self, *words: Argument) -> Any:
        """
        The answer to one command.

        Raises:
            ResponseError: the server refused it.
            RedisError, OSError: it is not known whether the server ran it.
        """
        return await self.submit(words)

    def submit(self, words: Words) -> asyncio.Future[Any]:
        """The answer to come to one command, which is sent also if nobody waits for it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((words, answer))
        if not self._coming:
            self._coming = TOGETHER
            task = loop.create_task(self._send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        self._coming -= 1
        return answer

    async def close(self) -> None:
        """Wait until nothing is under way."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def _send(self) -> None:
        # A task begins in the turn after the one it was made in: by then the lot is whole.
        lot = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
        if not self._waiting:
            self._coming = 0
        self.round_trips += 1
        self.calls += len(lot)
        try:
            async with self._slots, asyncio.timeout(self._timeout):
                connection = self._idle.pop() if self._idle else await self._pool.get_connection()
                try:
                    await exchange(connection, [words for words, _ in lot], [answer for _, answer in lot])
                finally:
                    self._idle.append(connection)
        except BaseException as error:
            problem = NoAnswerError(f"no answer within {self._timeout:g} s") if isinstance(error, TimeoutError) else error
            for _, answer in lot:
                if not answer.done():
                    answer.set_exception(problem) if isinstance(problem, Exception) else answer.cancel()
            if not isinstance(error, Exception):
                raise


async def exchange(connection: Any, commands: Iterable[Words], answers: Sequence[asyncio.Future[Any]]) -> None:
    """
    Send commands on a connection and give each its answer, an error of the server's included.

    Raises:
        RedisError, OSError: the connection failed, and was closed; those that were not answered are not done.
    """
    try:
        if not connection.is_connected or await connection.can_read():
            await connection.disconnect(nowait=True)  # it was closed at the other end while it was idle
            await connection.connect()
        packed = [pack_command(tuple(words)) for words in commands]  # type: ignore[arg-type]  # declared for one word only
        await connection.send_packed_command(b"".join(packed))
        for answer in answers:
            try:
                # The time is bounded by the caller, for all of them at once.
                value = await connection.read_response(timeout=math.inf)
            except ResponseError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(value)
    except BaseException:
        await connection.disconnect(nowait=True)
        raise

"""Processes that are looked after: their lines with a prefix, started again when they die, stopped in order."""

from __future__ import annotations

import asyncio
import ctypes
import re
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PAUSE_FIRST, PAUSE_MAX = 0.5, 15.0  # seconds before a process that died is started again
LASTED = 20.0  # seconds after which the pauses begin anew
_PR_SET_PDEATHSIG = 1
_LINE_MAX = 1 << 20
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Part:
    """
    One process.

    Args:
        name: what its lines begin with.
        command: what is run.
        log: gets all its lines.
        say: is told what people should read.
        environment: of the process.
        folder: it works in.
        shown: whether its lines are shown, or only what happens to it.
        grace: seconds that it gets to end in order.
    """

    name: str
    command: Sequence[str]
    log: Path
    say: Callable[[str, str], None]
    environment: Mapping[str, str]
    folder: Path
    shown: bool = True
    grace: float = 30.0
    process: Process | None = None
    starts: int = 0
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start it, and again whenever it dies, until `stop`."""
        self._task = asyncio.create_task(self._look_after(), name=self.name)

    async def once(self) -> int:
        """Run it to its end; gives the exit code."""
        process = await self._begin()
        await self._pass_on(process)
        return await process.wait()

    async def stop(self) -> None:
        """End it in order; at once when it does not."""
        self._stopping.set()
        self.signal(signal.SIGTERM)
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=self.grace)
            if late:
                self.say(self.name, f"does not end within {self.grace:.0f} s: killed")
                self.kill()
                await asyncio.wait({self._task})

    def kill(self) -> None:
        """End it at once."""
        self._stopping.set()
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def _look_after(self) -> None:
        pause = PAUSE_FIRST
        while not self._stopping.is_set():
            began = time.monotonic()
            process = await self._begin()
            await self._pass_on(process)
            code = await process.wait()
            if self._stopping.is_set():
                return
            pause = PAUSE_FIRST if time.monotonic() - began > LASTED else min(2 * pause, PAUSE_MAX)
            self.say(self.name, f"ended with {_ending(code)}; started again in {pause:g} s (its lines are in {self.log})")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _begin(self) -> Process:
        self.starts += 1
        self.process = await asyncio.create_subprocess_exec(
            *self.command,
            cwd=self.folder,
            env=dict(self.environment),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            limit=_LINE_MAX,
            # Ctrl-C reaches this process only, which stops the others in order.
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        if self._stopping.is_set():
            self.signal(signal.SIGTERM)
        return self.process

    async def _pass_on(self, process: Process) -> None:
        assert process.stdout is not None
        with self.log.open("ab") as log:
            while True:
                try:
                    line = await process.stdout.readline()
                except ValueError:
                    continue  # longer than any line should be: what was read of it is gone
                if not line:
                    return
                text = line.decode("utf-8", "replace")
                log.write(plain(text).encode())
                log.flush()
                if self.shown:
                    self.say(self.name, text.rstrip("\n"))


async def until(true: Callable[[], Awaitable[bool]], *, seconds: float, stopping: asyncio.Event, every: float = 0.1) -> bool:
    """Wait until something holds; False when it did not in time, or stopping began."""
    end = time.monotonic() + seconds
    while not stopping.is_set() and time.monotonic() < end:
        if await true():
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), every)
    return False


def plain(text: str) -> str:
    """A text without colours."""
    return _COLOUR.sub("", text)


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _die_with_parent() -> None:
    """Runs in the child: where the system can, have it ended when this process is killed and cannot do it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

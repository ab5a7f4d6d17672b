"""Everything that looks at one worker while it works: watchdog, look at its group, port, and the lines that tell of it."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import structlog

from streams.broker import Broker, BrokerRefusedError
from streams.group_watch import GroupWatch
from streams.health import Health, dependency
from streams.liveness import Watchdog
from streams.metric_readings import of_pipeline, of_worker
from streams.metrics import Meter, Reading
from streams.metrics_port import PATHS, MetricsPort
from streams.progress import Limits
from streams.runtime import Runtime
from streams.setting_values import show_value
from streams.settings import Settings, known
from streams.spending import spend
from streams.tracing import configure_tracing

LOOK_EVERY = 10.0  # seconds
LOOK_FIRST = 1.0  # seconds
"""Until the broker has the worker in its group."""
BEAT_EVERY = 0.5  # seconds
OUTCAST_MAX = 60.0  # seconds
PROBE_LIMIT = 10.0  # seconds
_LIBRARIES = ("faust-streaming", "aiokafka", "redis")

_log = structlog.stdlib.get_logger("streams.worker")


class Observer:
    """
    Looks at one worker.

    Args:
        role: what it does.
        runtime: the worker.
        in_hand_max: seconds for which something may be in hand.
    """

    def __init__(self, role: str, runtime: Runtime[Any], *, in_hand_max: float) -> None:
        self._role = role
        self._runtime = runtime
        stall = runtime.settings.worker.stall.total_seconds()
        self._every = min(LOOK_EVERY, stall / 5)
        limits = Limits(stall=stall, in_hand=in_hand_max, outcast=min(OUTCAST_MAX, stall))
        self._watchdog = Watchdog(runtime.progress, limits)
        self.health = Health(unwell=lambda: self._watchdog.unwell, waited_for=runtime.waited_for)
        self._port: MetricsPort | None = None
        self._meter: Meter | None = None
        self._watch: GroupWatch | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._held: dict[str, list[int]] = {}
        self._started = time.monotonic()
        self._untrace: Callable[[], None] | None = None

    def open(self) -> None:
        """
        Say what this process is, trace if traces are to be sent, and open the port if there is to be one.

        Raises:
            SettingError: the port cannot be had, or a package is not installed.
        """
        settings = self._runtime.settings
        _log.info("starting", role=self._role, pid=os.getpid(), **_versions(), settings=changed_settings(settings))
        self._runtime.on_stage = self._stage
        if settings.tracing:
            self._untrace = configure_tracing(f"{settings.kafka.prefix}-{self._role}")
        if settings.metrics.port is None:
            return
        self._meter = Meter(self._role, self._readings)
        self._runtime.on_batch = self._meter.batch
        self._port = MetricsPort(settings.metrics, self._meter.registry, self.health)
        _log.info("metrics", address=self._port.address, paths=PATHS)

    def begin(self, app: Any) -> None:
        """Watch the app's place in its group, and end the process when it works no more."""
        runtime = self._runtime
        self._watch = GroupWatch(app, Broker.of(runtime.settings), runtime.client, runtime.progress.delivered)
        self._watchdog.start()
        self._tasks = [asyncio.ensure_future(self._beat()), asyncio.ensure_future(self._look(app, self._watch))]

    async def end(self) -> None:
        """Watch no more, and close the port; idempotent."""
        self._watchdog.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._watch is not None:
            with suppress(Exception):
                await self._watch.close()
        untrace, self._untrace = self._untrace, None
        if untrace is not None:
            await asyncio.to_thread(untrace)
        port, self._port = self._port, None
        if port is not None:
            await asyncio.to_thread(port.close)

    def said(self) -> dict[str, object]:
        """What was done, for the last line: every counter that is not 0."""
        done: dict[str, object] = {"seconds": round(time.monotonic() - self._started, 1)}
        done |= {"records": self._runtime.progress.records, "in_hand": self._runtime.progress.in_hand}
        for name, value, labels in self._readings():
            if name.endswith("_total") and value and not name.startswith("banyan_records_"):
                short = name.removeprefix("banyan_").removesuffix("_total")
                done[" ".join((short, *labels))] = round(value)
        return done

    def _readings(self) -> Iterator[Reading]:
        yield Reading("banyan_build_info", 1, (_version("banyan-memory"), self._role))
        yield from of_worker(self.health, self._runtime.progress)
        yield from of_pipeline(self._runtime.opened)

    def _stage(self, name: str, seconds: float) -> None:
        spend(name, seconds)
        if self._meter is not None:
            self._meter.stage(name, seconds)

    async def _beat(self) -> None:
        while True:
            self._runtime.progress.beats += 1
            await asyncio.sleep(BEAT_EVERY)

    async def _look(self, app: Any, watch: GroupWatch) -> None:
        while True:
            await asyncio.sleep(min(LOOK_FIRST, self._every) if self.health.state else self._every)
            await self._at_group(app, watch)
            await self._ask("store", self._runtime.probe)

    async def _at_group(self, app: Any, watch: GroupWatch) -> None:
        progress = self._runtime.progress
        try:
            looks, member = await watch.look()
            progress.grouped(time.monotonic(), rebalancing=bool(app.rebalancing), count=app.rebalancing_count)
            progress.looked(time.monotonic(), looks, member=member)
        except Exception as error:  # noqa: BLE001  # whatever it is, nothing is known, and looking must go on
            progress.unseen()
            # What is refused does not pass by itself, and nothing else would tell of it.
            said = isinstance(error, BrokerRefusedError) and self.health.missing.get("kafka") != type(error).__name__
            self.health.missing["kafka"] = type(error).__name__
            if said:
                _log.warning("group refused", error=f"{type(error).__name__}: {error}")
            else:
                _log.debug("group not seen", error=f"{type(error).__name__}: {error}")
            return
        self.health.missing.pop("kafka", None)
        if self._runtime.draining:
            self.health.state = "is draining"
        elif member is False:
            self.health.state = "is not in its group"
        else:
            self.health.state = ""
        if progress.held != self._held:
            self._held = progress.held
            _log.info("partitions", held=self._held, count=sum(map(len, self._held.values())))

    async def _ask(self, name: str, probe: Callable[[], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(PROBE_LIMIT):
                await probe()
        except Exception as error:  # noqa: BLE001  # as above
            self.health.missing[dependency(error) or name] = type(error).__name__
        else:
            self.health.missing.pop(name, None)


def changed_settings(settings: Settings) -> dict[str, Any]:
    """The settings that are not the default, without secrets."""
    found: dict[str, Any] = {}
    for name, setting in known().items():
        value: Any = settings
        for part in setting.path:
            value = getattr(value, part)
        if value != setting.default:
            found[name] = show_value(value)
    return found


def _versions() -> dict[str, str]:
    found = {"version": _version("banyan-memory"), "python": platform.python_version()}
    return found | {name.partition("-")[0]: each for name in _LIBRARIES if (each := _version(name))}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""

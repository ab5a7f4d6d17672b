"""
The process of a worker: its own loop and signals, no Faust worker around it.

SIGTERM (or Ctrl-C): no new batches; what is in hand is finished, or left to another worker after the grace; offsets are committed.
A second signal ends at once. Nothing is lost either way. Exit codes: 0 after a signal, 75 when the worker could not go on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from typing import Any

import structlog

from streams.app import MAX_POLL_INTERVAL, Role, group_of, make_app, make_runtime
from streams.broker import Broker, BrokerUnavailableError, need_kafka, open_admin, translated
from streams.group_watch import may_join
from streams.liveness import EX_TEMPFAIL
from streams.log_limits import limit_logs
from streams.observing import Observer
from streams.runtime import Runtime
from streams.settings import Settings
from streams.topics import TopicsMissingError, require

STOP_LIMIT = 10.0  # seconds
"""For committing offsets and leaving the group, where the grace leaves no more than that, and again for closing what is open."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = structlog.stdlib.get_logger("streams.worker")


async def run_worker(role: Role, settings: Settings, *, runtime: Runtime[Any] | None = None) -> int:
    """
    Work until a signal comes.

    Args:
        role: what to do.
        settings: in force.
        runtime: with another pipeline than the role's own.

    Returns:
        The exit code.

    Raises:
        BanyanError: it cannot start: a setting, the store, a model, the broker, or missing topics.
    """
    need_kafka()
    limit_logs()
    runtime = runtime or make_runtime(role, settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    observer = Observer(str(role), runtime, in_hand_max=MAX_POLL_INTERVAL * 0.9)
    for each in _SIGNALS:
        loop.add_signal_handler(each, _on_signal, stop, each)
    try:
        observer.open()
        if not await _unless(stop, _start(role, runtime, observer)):
            return 0
        return await _work(role, runtime, observer, stop)
    finally:
        await observer.end()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


async def _start(role: Role, runtime: Runtime[Any], observer: Observer) -> None:
    """Everything that can be refused, before the group is joined."""
    settings = runtime.settings
    topics = runtime.topics
    records = [topics.turns, topics.documents, topics.feedback, topics.forgets]
    announced = [topics.commits] if settings.worker.announce else []
    own = [*records, topics.summaries, *announced] if role is Role.INGEST else [topics.summaries]
    names = [topic.name for topic in [*own, topics.dead_letters]]
    end = time.monotonic() + settings.worker.patience.total_seconds()
    said = False
    while True:
        try:
            admin = await open_admin(Broker.of(settings))
            try:
                await require(admin, names, settings.broker)
                await may_join(admin, group_of(role, settings), settings.broker)
            finally:
                await admin.close()
            break
        except TopicsMissingError:
            raise
        except BrokerUnavailableError as error:
            observer.health.missing["kafka"] = type(error).__name__
            if time.monotonic() > end:
                raise
            if not said:
                _log.warning("waiting", what="the broker", error=str(error))
                said = True
            await asyncio.sleep(1.0)
    observer.health.missing.clear()
    await runtime.pipeline()


async def _work(role: Role, runtime: Runtime[Any], observer: Observer, stop: asyncio.Event) -> int:
    settings = runtime.settings
    app = make_app(role, runtime)
    observer.begin(app)
    try:
        # The broker may go away again after it was found, and what Faust raises then is the client's own error.
        with translated(settings.broker):
            started = await _unless(stop, app.start())
        if started:
            _log.info("ready", role=str(role), group=app.conf.id, client=runtime.client, **_where(settings))
            await _unless(stop, app.wait_until_stopped())
        if app.crash_reason is not None:
            _log.error("crashed", error=f"{type(app.crash_reason).__name__}: {app.crash_reason}")
        observer.health.state = "is draining"
        grace = settings.worker.grace.total_seconds()
        end = time.monotonic() + grace
        left = app.crash_reason is not None or not await _within(grace, runtime.drain(), "finishing what is in hand")
        if left:
            _log.warning("left to another worker", in_hand=runtime.progress.in_hand)
        said = observer.said()
        # `wait_for` would not end here: Faust swallows the cancellation.
        left |= not await _within(max(STOP_LIMIT, end - time.monotonic()), app.stop(), "leaving the group")
        left |= not await _within(STOP_LIMIT, runtime.close(), "closing")
        _log.info("stopped", **said)
    finally:
        await observer.end()
    if left:
        # Tasks and threads that hang would keep an orderly end waiting.
        os._exit(EX_TEMPFAIL)
    return 0


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Do the work unless `stop` is set first; returns whether it was done."""
    working = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if working.done():
        working.result()
        return True
    working.cancel()
    await asyncio.wait({working}, timeout=STOP_LIMIT)
    return False


async def _within(seconds: float, work: Coroutine[Any, Any, object], what: str) -> bool:
    """Do the work; returns whether it ended in time and without an error, and logs it where it did not."""
    working = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({working}, timeout=seconds)
    error = working.exception() if done else TimeoutError(f"it took more than {seconds:.1f} s")
    if error is not None:
        _log.warning("not ended orderly", at=what, error=f"{type(error).__name__}: {error}")
    return error is None


def _where(settings: Settings) -> dict[str, str]:
    """What it works with, by kind: addresses may hold passwords."""
    return {"store": settings.store.split("://", 1)[0], "embedder": settings.embedder, "summarizer": settings.summarizer}


def _on_signal(stop: asyncio.Event, number: signal.Signals) -> None:
    if stop.is_set():
        _log.warning("ended at once", signal=number.name)
        os._exit(128 + number)
    _log.info("draining", signal=number.name)
    stop.set()

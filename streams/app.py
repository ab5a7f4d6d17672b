"""
The Faust app of each kind of worker.

`banyan worker ingest` runs it in a process of its own making (`streams.run`). Faust's command works as well, with settings from the
environment: `faust -A streams.app worker` ingests, `faust -A streams.app:summaries worker` makes summaries. Nothing is made or read
before one of the names is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from enum import StrEnum
from typing import Any

from streams.fetching import take_any_header
from streams.runtime import Runtime
from streams.settings import Settings

MAX_POLL_INTERVAL = 86_400.0  # seconds
"""After that long without taking anything the client leaves its group for good: far above any outage that is waited for."""
FETCH_WAIT_MAX = 25  # milliseconds
"""How long the broker may keep a request for records that has found none. The client asks each broker one thing at a time: while it
waits for a topic that is silent, what it has read ahead of the others runs out, and nothing is asked for until the answer. Faust's
1,500 ms made every record of a busy topic that late beside a silent one (decision 0023)."""
REQUEST_TIMEOUT = 90.0  # seconds
HEARTBEATS_PER_SESSION = 3.3
HEARTBEAT_MAX = 3.0  # seconds
"""Longest pause between two, however long the session: a member learns that the group is shared anew from the answer to one, and
all others wait for it."""


class Role(StrEnum):
    """What a worker does."""

    INGEST = "ingest"
    SUMMARIES = "summaries"


def make_runtime(role: Role, settings: Settings) -> Runtime[Any]:
    """What the role's agents share; nothing is opened yet."""
    from streams.pipelines import open_ingesting, open_summarizing  # noqa: PLC0415  # brings numpy

    openers: Mapping[Role, Callable[[Settings], Awaitable[Any]]] = {
        Role.INGEST: open_ingesting,
        Role.SUMMARIES: open_summarizing,
    }
    return Runtime(settings, openers[role])


def make_app(role: Role, runtime: Runtime[Any]) -> Any:
    """
    A `faust.App` with the role's agents, its consumer group and no web server, tables or leader.

    `stream_wait_empty` is off: a worker that waits for a model that is away must not hold up a rebalance of the others. What it has
    in hand then comes to another worker too, and is applied once all the same.
    """
    import faust  # noqa: PLC0415  # an optional extra, and half a second

    take_any_header()
    from streams.agents import documents, feedback, forgets, turns  # noqa: PLC0415
    from streams.security import faust_credentials  # noqa: PLC0415
    from streams.workers import summaries  # noqa: PLC0415

    class App(faust.App):  # type: ignore[misc]  # untyped here
        """Without the folders that Faust makes for tables, which there are none of; with every partition sought."""

        def _create_directories(self) -> None:
            pass

        def _new_consumer(self) -> Any:
            return _noting(_seeking_all(_answered_soon(super()._new_consumer())), runtime.progress.delivered)

    settings = runtime.settings
    kafka = settings.kafka
    session = kafka.session_timeout.total_seconds()
    app = App(
        group_of(role, settings),
        broker=[f"kafka://{address.strip()}" for address in settings.broker.split(",")],
        consumer_group_instance_id=f"{kafka.instance}-{role}" if kafka.instance else None,
        broker_client_id=runtime.client,
        broker_credentials=faust_credentials(kafka),
        broker_session_timeout=session,
        broker_heartbeat_interval=heartbeat_interval(session),
        # Faust refuses a session that is longer than a request may take.
        broker_request_timeout=max(REQUEST_TIMEOUT, session),
        broker_max_poll_interval=MAX_POLL_INTERVAL,
        consumer_auto_offset_reset="earliest",
        stream_wait_empty=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        web_enabled=False,
        logging_config=None,
        autodiscover=False,
    )
    if role is Role.INGEST:
        turns.register(app, runtime)
        documents.register(app, runtime)
        feedback.register(app, runtime)
        forgets.register(app, runtime)
    else:
        summaries.register(app, runtime)
    return app


def group_of(role: Role, settings: Settings) -> str:
    """The consumer group of all workers of a role."""
    return f"{settings.kafka.prefix}-{role}"


def heartbeat_interval(session: float) -> float:
    """Seconds between two heartbeats of a member whose session lasts so many seconds."""
    return min(session / HEARTBEATS_PER_SESSION, HEARTBEAT_MAX)


def _answered_soon(consumer: Any) -> Any:
    """Have requests for records wait no longer than `FETCH_WAIT_MAX`, which Faust has no setting for."""
    thread = consumer._thread  # noqa: SLF001
    create = thread._create_worker_consumer  # noqa: SLF001

    def brief(transport: Any) -> Any:
        client = create(transport)
        client._fetch_max_wait_ms = FETCH_WAIT_MAX  # noqa: SLF001
        return client

    thread._create_worker_consumer = brief  # noqa: SLF001
    return consumer


def _seeking_all(consumer: Any) -> Any:
    """
    Have the consumer seek every partition it was assigned, also those without a committed offset.

    What was fetched while the group shared its partitions anew is dropped by Faust, which relies on seeking back to the committed
    offsets. aiokafka does that only where the offset is above 0: in a partition of which nothing was committed yet, what was
    dropped would be passed over, and the next acknowledgement would commit past it.

    The client is another thread's, which may be handing records over: it seeks there. Faust's own `_seek` takes records from under
    that thread's hands, whose `KeyError` ends the worker.
    """
    seek_to_committed = consumer.seek_to_committed
    thread = consumer._thread  # noqa: SLF001

    async def seek_all() -> Any:
        offsets = await seek_to_committed()
        unsought = [partition for partition, offset in offsets.items() if not offset or offset < 0]
        if unsought:
            for partition, offset in (await consumer.earliest_offsets(*unsought)).items():
                await thread.call_thread(thread.seek, partition, offset)  # the consumer's `seek` would also forget what was read
        return offsets

    consumer.seek_to_committed = seek_all
    return consumer


def _noting(consumer: Any, delivered: MutableMapping[tuple[str, int], int]) -> Any:
    """Have the last offset that the client gave to Faust noted: Faust's own sensors see a record only when an agent does."""
    callback = consumer.callback

    def noted(message: Any) -> Any:
        delivered[message.tp] = message.offset
        return callback(message)

    consumer.callback = noted
    return consumer


def _from_environment(role: Role) -> Any:
    import os  # noqa: PLC0415

    from streams.settings import load  # noqa: PLC0415

    return make_app(role, make_runtime(role, load(os.environ).settings))


_APPS = {"app": Role.INGEST, "ingest": Role.INGEST, "summaries": Role.SUMMARIES}


def __getattr__(name: str) -> Any:
    if name not in _APPS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _from_environment(_APPS[name])
    return made

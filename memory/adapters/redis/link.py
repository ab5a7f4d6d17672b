"""The connection to Redis that store and leases share: scripts by SHA, retries while the server is away, errors translated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from inspect import signature
from typing import Any, Self, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ClusterDownError, NoScriptError, RedisError, ResponseError

from memory.adapters.redis.errors import translated
from memory.adapters.redis.keys import FORMAT, TreeKeys, format_key
from memory.adapters.redis.pipe import Argument, Pipe
from memory.adapters.redis.scripts import script
from memory.adapters.redis.settings import RedisSettings
from memory.errors import StoreUnavailableError, StoreVersionError, TransientError
from memory.model import TreeId

T = TypeVar("T")
KEYS_MAX = 10_000
"""Trees whose keys are remembered."""
PAUSE_FIRST, PAUSE_MAX = 0.02, 1.0  # seconds between attempts


class Link:
    """
    One process's connection to Redis.

    Args:
        client: of the vendor's library; closed with the link.
        settings: see there.
    """

    def __init__(self, client: Redis | RedisCluster, settings: RedisSettings) -> None:
        self._client = client
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.connections_max)
        self._keys: dict[TreeId, TreeKeys] = {}
        self._waiting = asyncio.Semaphore(settings.connections_max)
        self._asking: Redis | RedisCluster | None = None
        self._pipe: Pipe | None = None
        if not settings.cluster:
            self._asking = _client(settings, timed=False)
            assert isinstance(self._asking, Redis)
            seconds = settings.timeout.total_seconds()
            self._pipe = Pipe(self._asking.connection_pool, at_once=settings.connections_max, timeout=seconds)
        self.scripts_called = 0
        """Scripts that were called, repetitions included."""
        self.retries = 0
        """Calls that were tried again."""

    @classmethod
    async def open(cls, settings: RedisSettings) -> Self:
        """
        Connect.

        Raises:
            StoreUnavailableError: Redis cannot be reached.
            StoreVersionError: a newer Banyan wrote here.
            SettingError: the password is wrong, or the server too old.
        """
        link = cls(_client(settings), settings)
        try:
            key = format_key(settings.prefix)
            await link.command("SET", key, FORMAT, "NX")
            written = int(await link.command("GET", key) or FORMAT)
            if written > FORMAT:
                raise StoreVersionError(
                    f"layout {written} was written below {settings.prefix!r} by a newer Banyan; this one knows {FORMAT}: upgrade"
                )
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def settings(self) -> RedisSettings:
        """What the link was opened with."""
        return self._settings

    @property
    def round_trips(self) -> int:
        """Times that scripts were sent: those called at about the same time are sent together, on a cluster each by itself."""
        return self.scripts_called if self._pipe is None else self._pipe.round_trips

    def keys(self, tree: TreeId) -> TreeKeys:
        """Keys of a tree."""
        found = self._keys.get(tree)
        if found is None:
            if len(self._keys) >= KEYS_MAX:
                self._keys.clear()
            found = self._keys[tree] = TreeKeys.of(self._settings.prefix, tree)
        return found

    async def command(self, *words: Argument) -> Any:
        """Run one command; it must be harmless to run it twice."""
        return await self._patiently(str(words[0]), lambda _: self._slotted(self._client.execute_command(*words)))

    async def commands(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run commands on the server that has `key`, one after the other on one connection; harmless to run twice."""
        if not commands:
            return []
        return await self._patiently(str(commands[0][0]), lambda _: self._slotted(self._on_one_connection(key, *commands)))

    async def script(
        self, name: str, keys: Sequence[str], *arguments: Argument, again: Sequence[Argument] | None = None, replicas: int = 0
    ) -> Any:
        """
        Run a script.

        Args:
            name: of the file in `scripts/`.
            keys: all in one hash slot.
            arguments: the script's.
            again: the arguments where they differ for another attempt after an answer was lost; None where repeating is harmless.
            replicas: how many must have received what was written (`WAIT`).

        Raises:
            StoreUnavailableError: Redis is away, or too few replicas answered; whether the script ran is not known.
        """
        wanted = script(name)

        async def call(attempt: int) -> Any:
            given = arguments if again is None or attempt == 0 else again
            head: tuple[Argument, ...] = (len(keys), *keys, *given)
            try:
                return await self._send("EVALSHA", wanted.sha, head, keys[0], replicas)
            except NoScriptError:
                # After a restart, a failover or a flush. EVAL runs the script and makes it known in one call.
                return await self._send("EVAL", wanted.text, head, keys[0], replicas)

        return await self._patiently(name, call)

    async def scripts(self, name: str, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]) -> list[Any]:
        """
        Run one script on several keys, at the price of a future each; harmless to run twice.

        Args:
            name: of the file in `scripts/`.
            calls: of each the keys and the arguments.

        Returns:
            The answers, or the errors that `script` would have raised, in the calls' order.
        """
        answers: list[Any] = [None] * len(calls)
        again = list(range(len(calls)))
        if self._pipe is not None:
            sha = script(name).sha
            self.scripts_called += len(calls)
            sent = [self._pipe.submit(("EVALSHA", sha, len(keys), *keys, *given)) for keys, given in calls]
            answers = await asyncio.gather(*sent, return_exceptions=True)
            again = [index for index, answer in enumerate(answers) if isinstance(answer, Exception)]
        late = await asyncio.gather(*(self.script(name, *_flat(calls[index])) for index in again), return_exceptions=True)
        for index, answer in zip(again, late, strict=True):
            answers[index] = answer
        return answers

    async def wait_for(self, key: str, seconds: float) -> bytes | None:
        """Take the first element of a list, waiting for it at most so long; None when none came or Redis was away."""
        async with self._waiting:
            try:
                found = await _cancellable(self._client.execute_command("BLPOP", key, max(round(seconds, 3), 0.001)))
            except (RedisError, OSError):
                await asyncio.sleep(PAUSE_FIRST)
                return None
        return None if found is None else bytes(found[1])

    async def close(self) -> None:
        """Close the connections; idempotent."""
        if self._pipe is not None:
            await self._pipe.close()
        for client in (self._client, self._asking):
            if client is None:
                continue
            await client.aclose()
            pool = getattr(client, "connection_pool", None)
            if isinstance(pool, SentinelConnectionPool):
                # Those to the sentinels are the manager's, which the client does not close.
                for sentinel in pool.sentinel_manager.sentinels:
                    await sentinel.aclose()

    async def _send(self, command: str, what: str, head: Sequence[Argument], key: str, replicas: int) -> Any:
        self.scripts_called += 1
        if not replicas and self._pipe is not None:
            return await self._pipe(command, what, *head)
        return await self._slotted(self._alone(command, what, head, key, replicas))

    async def _alone(self, command: str, what: str, head: Sequence[Argument], key: str, replicas: int) -> Any:
        if not replicas:
            return await self._client.execute_command(command, what, *head)
        wait_ms = int(self._settings.wait.total_seconds() * 1000)
        answer, reached = await self._on_one_connection(key, (command, what, *head), ("WAIT", replicas, wait_ms))
        if reached < replicas:
            raise StoreUnavailableError(
                f"{reached} of {replicas} replicas received the commit within {wait_ms} ms; it may be lost in a failover",
                retry_after=1.0,
            )
        return answer

    async def _on_one_connection(self, key: str, *commands: Sequence[Argument]) -> list[Any]:
        """Answers to commands that must share a connection: `WAIT` counts from the last write of its own."""
        client = self._client
        if isinstance(client, RedisCluster):
            await client.execute_command("EXISTS", key)  # follows the key's slot to another node, if it has moved
            node = client.get_node_from_key(key)
            if node is None:
                raise ClusterDownError("no node has the slot")
            return await _exchange(node.acquire_connection(), node.release, commands)
        pool = client.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        return await _exchange(connection, pool.release, commands)

    async def _slotted(self, call: Awaitable[T]) -> T:
        """A call that takes a connection to itself."""
        async with self._slots:
            return await _cancellable(call)

    async def _patiently(self, what: str, call: Callable[[int], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.patience.total_seconds()
        attempt = 0
        while True:
            try:
                return await call(attempt)
            except (RedisError, OSError) as error:
                problem = translated(error, f"Redis, {what}")
                pause = min(PAUSE_FIRST * 2**attempt, PAUSE_MAX) * random.uniform(0.5, 1)  # noqa: S311  # jitter, not a secret
                if not isinstance(problem, TransientError) or loop.time() + pause > end:
                    raise problem from error
            attempt += 1
            self.retries += 1
            await asyncio.sleep(pause)


def _flat(call: tuple[Sequence[str], Sequence[Argument]]) -> tuple[Any, ...]:
    return (call[0], *call[1])


async def _cancellable(call: Awaitable[T]) -> T:
    """
    What `call` gives; a cancellation that came meanwhile is raised even where it was swallowed.

    The client sends under `asyncio.wait_for`, which before Python 3.12 forgets a cancellation that comes as the sending ends
    (cpython#86296): whoever cancels a writer would wait for ever.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    answer = await call
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return answer


async def _exchange(connection: Any, release: Callable[[Any], Any], commands: Sequence[Sequence[Argument]]) -> list[Any]:
    answers: list[Any] = []
    refused: ResponseError | None = None
    try:
        await connection.connect()
        await connection.send_packed_command(connection.pack_commands(commands))
        for _ in commands:
            try:
                answers.append(await connection.read_response())
            except ResponseError as error:
                refused = refused or error  # the other answers must be read off the connection all the same
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    finally:
        done = release(connection)
        if done is not None:
            await done
    if refused is not None:
        raise refused
    return answers


def _client(settings: RedisSettings, *, timed: bool = True) -> Redis | RedisCluster:
    """
    A client.

    Args:
        settings: how to reach the server.
        timed: whether each answer is waited for no longer than the settings say; else the caller bounds the time.
    """
    seconds = settings.timeout.total_seconds()
    # Retries are the link's own: a commit that is sent again must say so.
    common: dict[str, Any] = {
        "socket_timeout": seconds if timed else None,
        "socket_connect_timeout": seconds,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    # Else each new connection reads the library's version from its package, which takes longer than connecting.
    nameless = ("driver_info",) if "driver_info" in signature(Redis).parameters else ("lib_name", "lib_version")
    common |= dict.fromkeys(nameless)
    parts = urlsplit(settings.url)
    if settings.cluster:
        url = settings.url.replace("+cluster", "", 1)
        # Blocking calls, and a margin for the client's own, beside the ones the link lets through.
        return RedisCluster.from_url(url, max_connections=2 * settings.connections_max + 8, **common)
    pool_size = 2 * settings.connections_max  # calls that block, and the others
    if parts.scheme == "redis+sentinel":
        hosts = [host.rpartition(":") for host in parts.netloc.rpartition("@")[2].split(",")]
        sentinels = [(name or port, int(port) if name else 26379) for name, _, port in hosts]
        given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        user, password = (each and unquote(each) for each in (parts.username, parts.password))
        options: dict[str, Any] = {"username": user, "password": password, "db": int(given.get("db", 0))}
        asking = {**common, "socket_timeout": seconds}
        sentinel = Sentinel(sentinels, sentinel_kwargs=asking, **common)  # type: ignore[no-untyped-call]
        master: Redis = sentinel.master_for(parts.path.strip("/"), max_connections=pool_size, **options)
        return master
    pool = ConnectionPool.from_url(settings.url, max_connections=pool_size, **common)
    return Redis.from_pool(pool)

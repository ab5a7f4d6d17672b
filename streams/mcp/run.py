"""The process of `banyan mcp`: the memory that the settings name, as tools, until the host goes or a signal comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

import structlog

from memory.errors import SettingError
from memory.records import tree_id
from streams.bootstrap import for_requests, open_memory, open_remote
from streams.ending import Ending
from streams.mcp.pipes import serve_pipes
from streams.mcp.server import Bounds, Toolbox
from streams.settings import Settings

if TYPE_CHECKING:
    from streams.mcp.tools import Memory
    from streams.setting_tables import ServeSettings

HOST = "127.0.0.1"
PORT = 8001
_log = structlog.stdlib.get_logger("streams.mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How the server is to be reached, and what it may do."""

    transport: Literal["stdio", "http"] = "stdio"
    host: str = HOST
    port: int = PORT
    names: Sequence[str] = ()
    """Names by which hosts call it, beside its address."""
    keys: bool | None = None
    """Whether keys are asked for; None asks for them where others can reach the server."""
    tree: str | None = None
    read_only: bool = False


async def run_mcp(settings: Settings, wanted: Wanted, *, told: Callable[[str], None]) -> None:
    """
    Serve until the host closes our input, or a signal comes.

    Args:
        settings: in force.
        wanted: of the command.
        told: is told the address once connections are taken; never on standard input and output.

    Raises:
        BanyanError: it cannot start.
    """
    if wanted.tree is not None:
        tree_id(wanted.tree)
    serve = replace(settings.serve, host=wanted.host, port=wanted.port)
    bounds = _bounds(wanted, serve)
    if wanted.transport == "http":
        await _run_web(replace(settings, serve=serve), wanted, bounds, told)
        return
    ending = Ending()
    with ending.signals():
        async with _opened(settings, summaries=not wanted.read_only) as memory:
            await serve_pipes(Toolbox(memory, bounds), version=_version(), ending=ending, grace=serve.grace)


def _bounds(wanted: Wanted, serve: ServeSettings) -> Bounds:
    by_request = wanted.transport == "http"
    return Bounds(
        tree=wanted.tree,
        read_only=wanted.read_only,
        seconds=serve.timeout.total_seconds(),
        # Over HTTP each key has its own limit at the gate; one for all together would let a key keep out every other.
        at_once=serve.connections_max if by_request else serve.concurrency,
        by_request=by_request,
    )


def asks_for_keys(wanted: Wanted) -> bool:
    """
    Whether calls over HTTP need a key.

    A name that is not this machine's own says that something before the server, such as a proxy, passes on what others send.

    Raises:
        SettingError: everybody is to be let in where others can reach the server.
    """
    from streams.query.guard import is_loopback  # noqa: PLC0415  # an optional extra

    reached = [name for name in (wanted.host, *wanted.names) if not is_loopback(name.strip("[]"))]
    if wanted.keys is False and reached:
        raise SettingError(
            f"auth: off (BANYAN_AUTH) lets everybody in, and is taken only where nothing but this machine can reach the "
            f"tools: with --host {HOST} and no --allow-host, not with {reached[0]!r}; make a key with `banyan keys create` and "
            f"leave BANYAN_AUTH out"
        )
    return bool(reached) if wanted.keys is None else wanted.keys


async def _run_web(settings: Settings, wanted: Wanted, bounds: Bounds, told: Callable[[str], None]) -> None:
    try:
        from streams.mcp.web import allowed_names, serve_web  # noqa: PLC0415
        from streams.query.keys import KeyFile, KeyRing  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SettingError("tools over HTTP need the extras mcp and serve: pip install 'banyan-memory[mcp,serve]'") from error
    from memory.adapters.embedded.clock import SystemClock  # noqa: PLC0415

    serve = settings.serve
    keyed = asks_for_keys(wanted)
    names = allowed_names(serve.host, wanted.names)
    ending = Ending()
    with ending.signals():
        async with _opened(settings, summaries=not wanted.read_only) as memory:
            await serve_web(
                Toolbox(memory, bounds),
                version=_version(),
                serve=serve,
                ring=KeyRing(KeyFile(serve.keys_file)) if keyed else None,
                names=names,
                now=SystemClock().now,
                ending=ending,
                told=told,
            )


@asynccontextmanager
async def _opened(settings: Settings, *, summaries: bool) -> AsyncIterator[Memory]:
    if settings.url is not None:
        memory: Memory = open_remote(settings, on_degraded=lambda reason: _log.warning("degraded", reason=reason))
    else:
        memory = await open_memory(for_requests(settings), summaries=summaries)
    try:
        yield memory
    finally:
        await memory.close()


def _version() -> str:
    try:
        return version("banyan-memory")
    except PackageNotFoundError:
        return ""

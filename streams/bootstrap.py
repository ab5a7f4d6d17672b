"""The composition root: settings in, a memory with everything wired out. Adapters are chosen here and in `streams.models` alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memory.errors import SettingError
from streams.models import (
    embedder_for,
    open_context_filter,
    open_keywords,
    open_labels,
    open_navigator,
    open_summarizer,
)
from streams.settings import Settings

if TYPE_CHECKING:
    from memory.local import LocalMemory
    from memory.ports.budget import CallBudget, Rate
    from memory.ports.claims import NodeClaims
    from memory.ports.embedder import Embedder
    from memory.ports.leases import PathLeases
    from memory.ports.store import TreeStore
    from streams.remote import RemoteMemory


async def open_memory(
    settings: Settings,
    *,
    temporary: bool = False,
    path: Path | None = None,
    summaries: bool = True,
    read_only: bool = False,
    embeds: bool = True,
    around: Callable[[Embedder], Embedder] | None = None,
    apart: bool = False,
    structure_binds: bool = False,
) -> LocalMemory:
    """
    A memory as the settings say.

    Args:
        settings: in force.
        temporary: in a folder of its own that goes away at the end, whatever `path` and the settings say.
        path: store to open instead of the settings' one.
        summaries: whether this process makes summaries.
        read_only: whether nothing is to be written; the store must exist.
        embeds: whether texts are to be embedded. Otherwise no embedding model is loaded or asked for anything.
        around: puts another embedder around the settings' one.
        apart: whether summaries that are made without a remote model are made in another process, since this one answers questions.
        structure_binds: whether a tree that was made with another structure than the settings' is refused; otherwise it grows on as
            it was made.

    Raises:
        SettingError: a model's name is not known, or a package it needs is not installed.
        BanyanError: as `memory.open_local` says.
    """
    from memory.local import open_local  # noqa: PLC0415  # brings numpy

    if settings.store_is_redis and not temporary and path is None:
        return await _shared_memory(
            settings,
            summaries=summaries and not read_only,
            embeds=embeds,
            around=around,
            apart=apart,
            structure_binds=structure_binds,
        )
    if not temporary:
        from streams.indexes import need_redis  # noqa: PLC0415

        need_redis(settings)
    return await open_local(
        None if temporary else path or settings.store_path,
        embedder=await embedder_for(settings, embeds=embeds, around=around),
        summarizer=open_summarizer(settings, _own_budget(settings), apart=apart),
        navigator=open_navigator(settings),
        keywords=open_keywords(settings, _own_budget(settings)),
        context_filter=open_context_filter(settings),
        labels=open_labels(settings),
        settings=settings.memory,
        structure=settings.tree.structure,
        structure_binds=structure_binds,
        parameters=settings.tree.parameters(),
        summaries=summaries,
        read_only=read_only,
    )


def for_requests(settings: Settings) -> Settings:
    """The settings of a process that answers requests: one does not wait for minutes until a model is back."""
    ingest = settings.memory.ingest
    patience = min(ingest.embedder_patience, settings.serve.timeout / 3, timedelta(seconds=10))
    return replace(settings, memory=replace(settings.memory, ingest=replace(ingest, embedder_patience=patience)))


def open_remote(settings: Settings, *, on_degraded: Callable[[str], None] | None = None) -> RemoteMemory:
    """
    The memory behind the service that `settings.url` names; nothing is asked of it yet.

    Args:
        settings: in force.
        on_degraded: told what an answer is short of, when it is.

    Raises:
        SettingError: the address or the key cannot be used, or a package is not installed.
    """
    try:
        from streams.remote import connect  # noqa: PLC0415  # an optional extra
    except ModuleNotFoundError as error:
        raise SettingError("url: asking a service needs the extra client: pip install 'banyan-memory[client]'") from error
    return connect(settings, on_degraded=on_degraded)


async def _shared_memory(
    settings: Settings,
    *,
    summaries: bool,
    embeds: bool,
    around: Callable[[Embedder], Embedder] | None,
    apart: bool,
    structure_binds: bool,
) -> LocalMemory:
    from memory.local import open_shared  # noqa: PLC0415
    from streams.indexes import open_index  # noqa: PLC0415

    # The model first: it takes the longest, and needs no connection to be given back when it cannot be had.
    embedder = await embedder_for(settings, embeds=embeds, around=around)
    navigator = open_navigator(settings)
    backend = await open_backend(settings)
    try:
        summarizer = open_summarizer(settings, backend.budget, apart=apart)
        index = await open_index(settings)
    except BaseException:
        await backend.close()
        raise
    return await open_shared(
        backend.store,
        backend.leases,
        backend.claims,
        embedder=embedder,
        summarizer=summarizer,
        navigator=navigator,
        keywords=open_keywords(settings, _own_budget(settings)),
        context_filter=open_context_filter(settings),
        labels=open_labels(settings),
        release=backend.close,
        index=index,
        index_file=settings.index_file,
        settings=settings.memory,
        structure=settings.tree.structure,
        structure_binds=structure_binds,
        parameters=settings.tree.parameters(),
        summaries=summaries,
    )


@dataclass(frozen=True, slots=True)
class Backend:
    """Where the trees are, for processes that share them."""

    store: TreeStore
    leases: PathLeases
    claims: NodeClaims
    budget: CallBudget
    """Of the summarizing model's provider."""
    close: Callable[[], Awaitable[None]]
    """Releases them."""


async def open_backend(settings: Settings) -> Backend:
    """
    The store and the leases that the settings name, without index or models.

    Raises:
        SettingError: the store's address cannot be used.
        BanyanError: it cannot be opened.
    """
    return await (_redis_backend(settings) if settings.store_is_redis else _embedded_backend(settings))


async def _redis_backend(settings: Settings) -> Backend:
    try:
        from memory.adapters.redis import (  # noqa: PLC0415  # an optional extra
            Link,
            RedisCallBudget,
            RedisNodeClaims,
            RedisPathLeases,
            RedisTreeStore,
        )
    except ModuleNotFoundError as error:
        raise SettingError("store: Redis needs the extra redis: pip install 'banyan-memory[redis]'") from error
    from streams.redis_options import redis_settings  # noqa: PLC0415

    link = await Link.open(redis_settings(settings))
    budget = RedisCallBudget(link, f"{settings.openai.base_url or ''} {settings.summarizer}", _rate(settings))
    return Backend(RedisTreeStore(link), RedisPathLeases(link), RedisNodeClaims(link), budget, link.close)


async def _embedded_backend(settings: Settings) -> Backend:
    from memory.adapters.embedded.budget import InProcessBudget  # noqa: PLC0415
    from memory.adapters.embedded.claims import InProcessClaims  # noqa: PLC0415
    from memory.adapters.embedded.clock import SystemClock  # noqa: PLC0415
    from memory.adapters.embedded.gate import FileLeases  # noqa: PLC0415
    from memory.adapters.embedded.store import SqliteTreeStore  # noqa: PLC0415
    from memory.local import LOCK_SUFFIX  # noqa: PLC0415

    file = store_file(settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    leases = FileLeases(file.with_suffix(LOCK_SUFFIX), clock)
    store = await SqliteTreeStore.open(file, leases=leases.local)

    async def close() -> None:
        await store.close()
        leases.close()

    return Backend(store, leases, InProcessClaims(clock), InProcessBudget(_rate(settings), clock), close)


def _rate(settings: Settings) -> Rate:
    from memory.ports.budget import Rate  # noqa: PLC0415

    limits = settings.openai
    return Rate(requests_per_minute=limits.requests_per_minute or 0, tokens_per_minute=limits.tokens_per_minute or 0)


def _own_budget(settings: Settings) -> CallBudget:
    from memory.adapters.embedded.budget import InProcessBudget  # noqa: PLC0415
    from memory.adapters.embedded.clock import SystemClock  # noqa: PLC0415

    return InProcessBudget(_rate(settings), SystemClock())


def store_file(settings: Settings) -> Path:
    """The file that the settings' trees are in, whether it is there or not."""
    from memory.local import STORE_FILE  # noqa: PLC0415

    path = settings.store_path
    return path if path.suffix == ".db" else path / STORE_FILE

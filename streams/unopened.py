"""The embedding model of a command that needs none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from memory.errors import SettingError
from memory.ports.embedder import Embedder, EmbeddingModel, Purpose


class UnopenedEmbedder(Embedder):
    """
    Stands for a model that is not loaded: commands that only look at trees work without it, in a tenth of the time.

    Args:
        name: of the model, for messages.
    """

    def __init__(self, name: str) -> None:
        self._model = EmbeddingModel(name=f"{name} (not loaded)", dimension=1, unrelated_cosine=0.0)

    @property
    def model(self) -> EmbeddingModel:
        """One that no tree was made with: what is not loaded is not known."""
        return self._model

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NoReturn:  # noqa: ARG002
        """Refused."""
        raise SettingError(f"embedder {self._model.name}: this memory was opened to be looked at only")

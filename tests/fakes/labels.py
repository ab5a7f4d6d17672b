"""Labels without a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory.errors import LabelError
from memory.ports import labels as ports
from memory.ports.labels import Labels


class FakeLabels(ports.LabelExtractor):
    """Labels by the number in a text; fails as often as told."""

    def __init__(self, *, texts_max: int = 4, error: Exception | None = None, failures: int = 0, seconds: float = 0.0) -> None:
        self._texts_max = texts_max
        self.seconds = seconds
        self.error = error or LabelError("away")
        self.failures = failures
        self.calls: list[tuple[list[str], list[Labels]]] = []

    @property
    def name(self) -> str:
        return "fake"

    @property
    def texts_max(self) -> int:
        return self._texts_max

    async def labels(self, texts: Sequence[str], *, known: Sequence[Labels]) -> list[Labels]:
        self.calls.append((list(texts), list(known)))
        await asyncio.sleep(self.seconds)
        if self.failures:
            self.failures -= 1
            raise self.error
        numbers = [int(text.rsplit("number", 1)[1]) for text in texts]
        return [(f"Domain {number % 2}", f"Category {number % 4}", f"Trace {number % 8}") for number in numbers]

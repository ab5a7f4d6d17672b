"""
Labels for what is to be placed by them (H-MEM, section 3.1), where a model is configured.

This is the one thing that an insertion waits for a chat model for, since the label decides where the episode goes; so it is off
unless it is asked for, bounded in time by the model's adapter, and given up at the first failure: then the vector decides, as it
does without a model, and the model is left alone for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory.errors import LabelError
from memory.model import Item, TreeId
from memory.ports.clock import Clock
from memory.ports.labels import LabelExtractor, Labels
from memory.retrieval.text import embedded_text
from memory.service.views import Views
from memory.structures.hmem import LABEL
from memory.tree.view import View

REST = 30.0  # seconds
"""For which a model that failed is not asked."""
KNOWN_MAX = 120
"""Labels of a tree that the model is told, the newest first."""
LOOKED_MAX = 5_000
"""Traces that are looked at for them: in a tree that began without a model most have none."""


@dataclass(slots=True)
class LabelCounters:
    """What was labelled since the process started."""

    labelled: int = 0
    """Items."""
    unlabelled: int = 0
    """Items that were placed by their vectors because the model was away, or said nothing usable."""


class Labelling:
    """
    Asks for labels.

    Args:
        extractor: says where things belong.
        views: of this process; know the labels that a tree has.
        clock: the port.
    """

    def __init__(self, *, extractor: LabelExtractor, views: Views, clock: Clock) -> None:
        self._extractor = extractor
        self._views = views
        self._clock = clock
        self._resting_until = float("-inf")
        self.counters = LabelCounters()
        self.last_error: LabelError | None = None
        """Why the model was last given up."""

    async def label(self, tree: TreeId, items: Sequence[Item]) -> list[tuple[str, ...]]:
        """
        Of each item its labels, or none; never waits for a model that is away longer than one call.

        Raises:
            SettingError: the key or the model was refused: waiting would change nothing.
        """
        found: list[tuple[str, ...]] = []
        if items and self._clock.monotonic() >= self._resting_until:
            async with self._views.hold(tree) as view:
                known = known_labels(view)
            size = self._extractor.texts_max
            for start in range(0, len(items), size):
                texts = [embedded_text(item) for item in items[start : start + size]]
                try:
                    some = await self._extractor.labels(texts, known=known)
                except LabelError as error:
                    self.last_error = error
                    self._resting_until = self._clock.monotonic() + max(REST, error.retry_after or 0.0)
                    break
                found += some
                known = list(dict.fromkeys([*some, *known]))[:KNOWN_MAX]
        self.counters.labelled += len(found)
        self.counters.unlabelled += len(items) - len(found)
        return [*found, *[()] * (len(items) - len(found))]


def known_labels(view: View) -> list[Labels]:
    """The labels of traces with those of the nodes above them, the newest first; at most `KNOWN_MAX`."""
    found: list[Labels] = []
    looked = 0
    for domain in reversed(view.root.ids):
        for category in reversed(view.branches[domain].ids):
            for trace in reversed(view.branches[category].ids):
                looked += 1
                labels = tuple(view.attributes.get(node, {}).get(LABEL) for node in (domain, category, trace))
                if all(isinstance(each, str) for each in labels):
                    found.append((str(labels[0]), str(labels[1]), str(labels[2])))
                if len(found) >= KNOWN_MAX or looked >= LOOKED_MAX:
                    return found
    return found

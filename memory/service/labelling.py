"""
Labels for what is to be placed by them (H-MEM, section 3.1), where a model is configured.

This is the one thing that an insertion waits for a chat model for, since the label decides where the episode goes; so it is off
unless it is asked for, bounded in time for a whole batch, and given up at the first failure: then the vector decides, as it
does without a model, and the model is left alone for a while. No record is refused for want of a label.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory.errors import LabelError, SettingError
from memory.model import Item, TreeId
from memory.ports.clock import Clock
from memory.ports.labels import LabelExtractor, Labels
from memory.retrieval.text import embedded_text
from memory.service.views import Views
from memory.structures.hmem import LABEL
from memory.tree.view import View

WAIT_MAX = 60.0  # seconds
"""For which a batch waits for the labels of all its trees together; what has none by then goes without."""
CALLS_AT_ONCE = 8
"""Calls of the model that this process has under way at once."""
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
    failed: int = 0
    """Calls of the model that failed; it is left alone for a while after each."""


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
        self._calls = asyncio.Semaphore(CALLS_AT_ONCE)
        self._resting_until = float("-inf")
        self._answered_at = float("-inf")
        self.counters = LabelCounters()
        self.last_error: LabelError | SettingError | None = None
        """Why the model was last given up."""

    async def label(self, wanted: Mapping[TreeId, Sequence[Item]]) -> dict[TreeId, list[tuple[str, ...]]]:
        """Of each tree's items their labels, or none where the model is away, refuses, or takes more than `WAIT_MAX`."""
        begun = self._clock.monotonic()
        found = await asyncio.gather(*(self._of_tree(tree, items, begun) for tree, items in wanted.items()))
        return dict(zip(wanted, found, strict=True))

    async def _of_tree(self, tree: TreeId, items: Sequence[Item], begun: float) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        if items and not self.resting:
            async with self._views.hold(tree) as view:
                known = known_labels(view)
            size = self._extractor.texts_max
            for start in range(0, len(items), size):
                texts = [embedded_text(item) for item in items[start : start + size]]
                some = await self._asked(texts, known, begun)
                if some is None:
                    break
                found += some
                known = list(dict.fromkeys([*some, *known]))[:KNOWN_MAX]
        self.counters.labelled += len(found)
        self.counters.unlabelled += len(items) - len(found)
        return [*found, *[()] * (len(items) - len(found))]

    async def _asked(self, texts: Sequence[str], known: Sequence[Labels], begun: float) -> list[Labels] | None:
        """What the model says; None when it says nothing, or there is no time left to ask it."""
        left = begun + WAIT_MAX - self._clock.monotonic()
        if left <= 0:
            return None
        try:
            async with asyncio.timeout(left), self._calls:
                if self.resting:
                    return None
                found = await self._extractor.labels(texts, known=known)
        except LabelError as error:
            self._give_up(error, error.retry_after)
            return None
        except SettingError as error:
            # A key or a model that is refused is no fault of the records: they are taken, and whoever runs this is told.
            if not self.resting:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"what comes is placed without labels for {REST:.0f} s: {error}", "exception": error}
                )
            self._give_up(error, None)
            return None
        except TimeoutError:
            # One that answers, but not all in time, goes on being asked.
            if self._answered_at < begun:
                self._give_up(LabelError(f"{self._extractor.name} has given no labels for {WAIT_MAX:.0f} s"), None)
            return None
        self._answered_at = self._clock.monotonic()
        return found

    @property
    def resting(self) -> bool:
        """Whether the model is left alone just now; any thread may ask."""
        return self._clock.monotonic() < self._resting_until

    def _give_up(self, error: LabelError | SettingError, retry_after: float | None) -> None:
        self.counters.failed += 1
        self.last_error = error
        self._resting_until = self._clock.monotonic() + max(REST, retry_after or 0.0)


def known_labels(view: View) -> list[Labels]:
    """The labels of traces with those of the nodes above them, the newest first; at most `KNOWN_MAX`."""
    found: list[Labels] = []
    looked = 0
    for domain in reversed(view.root.ids):
        for category in reversed(view.branches[domain].ids):
            for trace in reversed(view.branches[category].ids):
                looked += 1
                labels = tuple(view.attributes.get(node, {}).get(LABEL) for node in (domain, category, trace))
                if all(each and isinstance(each, str) for each in labels):
                    found.append((str(labels[0]), str(labels[1]), str(labels[2])))
                if len(found) >= KNOWN_MAX or looked >= LOOKED_MAX:
                    return found
    return found

"""The first half of an ingestion: what is new is cut into items and embedded; nothing is written but a new tree."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.errors import EmbedderError, StoreUnavailableError, TreeMismatchError, TreeNotFoundError
from memory.model import EventId, Item, TreeId, TreeInfo, Vector
from memory.ports.clock import Clock
from memory.ports.embedder import Embedder
from memory.ports.store import Receipt, TreeStore
from memory.records import Record
from memory.retrieval.text import embedded_text
from memory.service.chunking import items
from memory.service.embedding import check_model, embed
from memory.service.labelling import Labelling
from memory.service.stages import Stages
from memory.service.views import Views
from memory.settings import IngestSettings
from memory.structures import registry
from memory.structures.base import Structure
from memory.tree.planning import Insertion

EMBEDDER_WAIT_MAX = 30.0  # seconds between attempts
STRUCTURES_MAX = 100_000
"""Trees whose structure is remembered, about 200 bytes each; that of another one is read again."""
ALIKE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """Records of one tree that are new to it as far as was known, embedded and ready to be committed."""

    tree: TreeId
    records: tuple[Record, ...]
    """One an id."""
    insertions: tuple[tuple[Insertion, ...], ...]
    """Of each record, its items."""
    known: Mapping[EventId, Receipt]
    """Receipts of the records that had been applied before."""


class Preparing:
    """
    Prepares records for their trees.

    Args:
        store, embedder, clock: the ports.
        views: of this process; a tree that is made here begins with an empty one.
        settings: limits.
        stages: told of `embed`.
        structure, parameters, structure_binds, labelling: see `memory.service.ingest.Ingest`.
    """

    def __init__(
        self,
        *,
        store: TreeStore,
        embedder: Embedder,
        clock: Clock,
        views: Views,
        settings: IngestSettings,
        stages: Stages,
        structure: str,
        parameters: Mapping[str, float] | None,
        structure_binds: bool,
        labelling: Labelling | None = None,
    ) -> None:
        self._store = store
        self._labelling = labelling
        self._embedder = embedder
        self._clock = clock
        self._views = views
        self._settings = settings
        self._stages = stages
        self._default = registry.make(structure, embedder.model, parameters)
        self._structure_binds = structure_binds
        self._structures: dict[TreeId, Structure] = {}
        self._alike: dict[tuple[Any, ...], Structure] = {}
        """Structures by what they are made of: one serves all trees that are alike."""
        self.on_wait: Callable[[EmbedderError, float], None] | None = None
        """Called before each wait, in seconds, for an embedding model that is away."""

    async def ensure_tree(self, tree: TreeId) -> Structure:
        """
        The tree's structure; the tree is made if it does not exist.

        Raises:
            TreeMismatchError: it was made with another embedding model, or with another structure where that binds.
        """
        known = self._structures.pop(tree, None)
        if known is None:
            known = await self._make(tree)
        self._structures[tree] = known
        if len(self._structures) > STRUCTURES_MAX:
            del self._structures[next(iter(self._structures))]
        return known

    async def _make(self, tree: TreeId) -> Structure:
        info = await self._store.create_tree(
            TreeInfo(
                id=tree,
                structure=self._default.name,
                model=self._embedder.model,
                parameters=self._default.parameters(),
                created_at=self._clock.now(),
            )
        )
        check_model(info, self._embedder)
        if self._structure_binds and info.structure != self._default.name:
            raise TreeMismatchError(
                f"tree {tree!r} is a {info.structure} tree, {self._default.name} is configured; "
                f"use --structure {info.structure}, or another tree name"
            )
        if not info.seq:
            self._views.begin(tree, info.model.dimension)
        identity = (info.structure, info.model, tuple(sorted(info.parameters.items())))
        if identity not in self._alike:
            if len(self._alike) >= ALIKE_MAX:
                self._alike.clear()
            self._alike[identity] = registry.of(info)
        return self._alike[identity]

    def knows(self, tree: TreeId) -> bool:
        """Whether `ensure_tree` has nothing to wait for."""
        return tree in self._structures

    def lost(self, trees: Iterable[TreeId], error: TreeNotFoundError) -> StoreUnavailableError:
        """One of these trees, which were all there, is not any more: look at all of them again; returns what to raise."""
        for tree in trees:
            self._structures.pop(tree, None)
        return StoreUnavailableError(
            f"{error}, though it was there before: the store has lost it, as after a flush or a restart without its file; it is "
            "made anew, and what was in it comes back by `banyan repair` (docs/redis.md)",
            retry_after=0.0,
        )

    async def prepare_all(self, batches: Mapping[TreeId, Sequence[Record]]) -> list[Prepared]:
        """
        `prepare` for several trees, in their order, embedded in one call.

        Raises:
            EmbedderError, EmbedderAnswerError: nothing was embedded.
        """
        missing = [tree for tree in batches if not self.knows(tree)]
        if missing:
            await asyncio.gather(*map(self.ensure_tree, missing))
        receipts = await self._store.receipts_among(
            {tree: [EventId(record.id) for record in records] for tree, records in batches.items()}
        )
        known = [receipts[tree] for tree in batches]
        fresh = [
            tuple(record for record in records if record.id not in seen)
            for records, seen in zip(batches.values(), known, strict=True)
        ]
        cut = [[items(record, chunk_tokens=self._settings.chunk_tokens) for record in records] for records in fresh]
        rows = iter(await self._embed([item for batch in cut for group in batch for item in group]))
        labels = iter(await self._labels(dict(zip(batches, cut, strict=True))))
        return [
            Prepared(
                tree,
                records,
                tuple(tuple(Insertion(item=item, vector=next(rows), labels=next(labels)) for item in group) for group in batch),
                seen,
            )
            for tree, records, batch, seen in zip(batches, fresh, cut, known, strict=True)
        ]

    async def _labels(self, cut: Mapping[TreeId, Sequence[Sequence[Item]]]) -> list[tuple[str, ...]]:
        """Of all trees' items, in order; all trees at once, so that none waits for the labels of another."""
        wanted = {tree: [item for group in batch for item in group] for tree, batch in cut.items()}
        found: Mapping[TreeId, Sequence[tuple[str, ...]]] = {}
        if self._labelling is not None:
            asking = [tree for tree in wanted if (await self.ensure_tree(tree)).asks_labels]
            found = await self._labelling.label({tree: wanted[tree] for tree in asking})
        return [each for tree, items in wanted.items() for each in found.get(tree, [()] * len(items))]

    async def _embed(self, wanted: Sequence[Item]) -> list[Vector]:
        if not wanted:
            return []
        texts = [embedded_text(item) for item in wanted]
        end = self._clock.monotonic() + self._settings.embedder_patience.total_seconds()
        for attempt in itertools.count():
            try:
                with self._stages("embed"):
                    return await embed(self._embedder, texts)
            except EmbedderError as error:
                wait = max(error.retry_after or 0.0, min(2.0**attempt, EMBEDDER_WAIT_MAX))
                if self._clock.monotonic() + wait > end:
                    raise
                if self.on_wait is not None:
                    self.on_wait(error, wait)
                await self._clock.sleep(wait)
        raise AssertionError("itertools.count does not end")

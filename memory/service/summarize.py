"""
Summaries, brought up to date outside of any transaction (design section 4).

read the node, its version and its contributions → aggregate → embed, or mean of the leaves → apply by version; contributions that
came meanwhile stay and raise the next job. A changed version means: read again.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from memory.changes import ChangeSet, Cost, Expectation, Rewrite
from memory.errors import (
    LeaseBusyError,
    LeaseLostError,
    SummarizerAnswerError,
    SummarizerError,
    TransientError,
)
from memory.model import MARK_BITS, Mark, Node, NodeId, NodeKind, TreeId
from memory.ports.clock import Clock
from memory.ports.embedder import Embedder
from memory.ports.keywords import KeywordExtractor
from memory.ports.leases import PathLeases
from memory.ports.store import Applied, Contribution, Seen, Stale, TreeStore
from memory.ports.summarizer import Summarizer, Summary, SummaryRequest, within_budget
from memory.service.children import Answers, gather_anew, gather_children, lost_its_sources
from memory.service.embedding import embed
from memory.service.gathering import CONTRIBUTIONS_PER_READ, Work, gather
from memory.service.granularities import NO_KEYWORDS, joined, parted, transcript
from memory.service.known import KnownStructures
from memory.service.stages import Stages
from memory.settings import SummarySettings
from memory.structures.base import Aggregation
from memory.tree.similarity import merge_means

_Answer = TypeVar("_Answer")
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
LEASE_TTL = timedelta(seconds=10)
LEASE_WAIT = timedelta(seconds=1)


class JobOutcome(StrEnum):
    """What became of one summary job."""

    FRESH = "fresh"
    """The node was up to date, or is gone."""
    WRITTEN = "written"
    """A new summary was written; nothing is left to do unless something came meanwhile."""
    MORE = "more"
    """A new summary was written and contributions beyond the token budget are left."""
    CHANGED = "changed"
    """The node changed meanwhile; the work was dropped."""
    COVERED = "covered"
    """All that the job was about is in the summary already, and what waits came later: nothing was asked."""


@dataclass(slots=True)
class SummaryCounts:
    """What the pool has done since the process started."""

    done: int = 0
    """Jobs that ended with an up-to-date node."""
    written: int = 0
    covered: int = 0
    """Leaves folded into summaries, counted at each of them."""
    failed: int = 0
    """Attempts that failed, each counted."""
    busy: int = 0
    """Jobs put off because another worker had the node."""
    skipped: int = 0
    """Jobs that needed no call: what they were about was in the summary already."""
    given_up: int = 0
    """Nodes given up after the last attempt; they stay pending."""
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    last_error: str = ""
    away: TransientError | None = None
    """What the pool waits for, from the first attempt that failed for it to the next that did not."""


class Summarize:
    """
    Brings one summary node up to date.

    Args:
        store, leases, embedder, summarizer, keywords, clock: the ports.
        settings: limits.
    """

    def __init__(
        self,
        *,
        store: TreeStore,
        leases: PathLeases,
        embedder: Embedder,
        summarizer: Summarizer,
        keywords: KeywordExtractor,
        clock: Clock,
        settings: SummarySettings,
    ) -> None:
        self._store = store
        self._leases = leases
        self._embedder = embedder
        self._summarizer = summarizer
        self._keywords = keywords
        self.clock = clock
        self._settings = settings
        self._structures = KnownStructures(store)
        self._answers = Answers()
        self.counts = SummaryCounts()
        self.stages = Stages(clock)
        """`read`, `model`, `embed`, `write`."""

    def forget(self) -> None:
        """Let go of the answers that are remembered, of all trees: some may have been made of what one has forgotten."""
        self._answers = Answers()

    async def refresh(self, tree: TreeId, node: NodeId, *, seq: int = 0) -> JobOutcome:
        """
        Fold contributions of a node into its summary, as many as fit one call.

        Args:
            tree: which.
            node: of it.
            seq: the commit that the job is about; contributions of later ones alone are left to their own jobs. 0: whatever waits.

        Raises:
            SummarizerError, SummarizerAnswerError, EmbedderError: the old text stays, the contributions too.
            NotReady: it is made of its children, and they are not up to date.
        """
        with self.stages("read"):
            found = (await self._store.nodes(tree, [node], vectors=True)).get(node)
            if found is None or found.kind is not NodeKind.SUMMARY or found.pending == 0:
                return JobOutcome.FRESH
            anew = lost_its_sources(found)
            limit = found.pending if anew else CONTRIBUTIONS_PER_READ
            waiting = await self._store.contributions(tree, node, limit=max(limit, CONTRIBUTIONS_PER_READ))
            if not waiting:
                return JobOutcome.FRESH
            if seq and waiting[0].mark >> MARK_BITS > seq:
                return JobOutcome.COVERED
            aggregation = (await self._structures.of(tree)).aggregation(found)
            if anew:
                # It lost what it was made of: something below it was forgotten.
                self.forget()
            gathered = gather_anew(self._store, tree, found, waiting) if anew else self._gather(tree, found, waiting, aggregation)
            work = await gathered
        assert found.parent is not None
        if work.texts:
            rewrite = await self._rewrite(found, found.parent, work, aggregation, anew=anew)
        else:
            rewrite = _trim(found, found.parent, work.through)
        changes = ChangeSet(
            tree=tree, steps=(rewrite,), expects=(Expectation(node=node, version=found.version),), at=self.clock.now()
        )
        with self.stages("write"):
            outcome = await self._apply(changes, found.parent)
        if not isinstance(outcome, Applied):
            return JobOutcome.CHANGED
        self.counts.written += 1
        self.counts.covered += work.leaves
        return JobOutcome.MORE if work.left else JobOutcome.WRITTEN

    async def _gather(self, tree: TreeId, node: Node, waiting: Sequence[Contribution], aggregation: Aggregation) -> Work:
        match aggregation:
            case Aggregation.CHILDREN:
                return await gather_children(self._store, tree, node, waiting)
            case Aggregation.ITEMS:
                return await gather(self._store, tree, node, waiting, tokens_max=sys.maxsize, fold=False)
            case Aggregation.KEYWORDS:
                return await gather(self._store, tree, node, waiting, tokens_max=self._keywords.tokens_max, fold=False)
            case Aggregation.CONTRIBUTIONS:
                return await gather(self._store, tree, node, waiting, tokens_max=self._summarizer.tokens_max)

    async def _rewrite(self, node: Node, parent: NodeId, work: Work, aggregation: Aggregation, *, anew: bool) -> Rewrite:
        request = SummaryRequest(existing=work.existing, new=work.texts, descendants=node.descendants, covered=work.covered)
        from_text = self._summarizer.vector_from_text
        match aggregation:
            case Aggregation.CHILDREN:
                summary = await self._of_children(request)
            case Aggregation.ITEMS:
                text = transcript(work.existing, work.texts, characters_max=self._settings.text_characters_max)
                summary, from_text = Summary(text=text), False
            case Aggregation.KEYWORDS:
                summary = await self._of_keywords(work)
                from_text = summary.text != NO_KEYWORDS
            case Aggregation.CONTRIBUTIONS:
                summary = await (self._of_children(request) if anew else self._ask(request))
        vector, cohesion = merge_means(work.means)
        if from_text:
            with self.stages("embed"):
                [vector] = await embed(self._embedder, [summary.text])
        return Rewrite(
            node=node.id,
            parent=parent,
            vector=vector,
            cohesion=cohesion,
            through=work.through,
            text=summary.text,
            cost=Cost(calls=summary.calls, tokens_in=summary.tokens_in, tokens_out=summary.tokens_out),
        )

    async def _of_keywords(self, work: Work) -> Summary:
        """The keywords as a text; as often asked as the budget makes necessary."""
        extractor, most = self._keywords, self._settings.text_characters_max
        total, text, covered, rest = Cost(), work.existing, work.covered, work.texts
        while rest:
            count = within_budget(rest, extractor.tokens_max)
            asked = extractor.keywords(rest[:count], existing=parted(text), covered=covered)
            found = await self._in_time(extractor.name, asked)
            text, covered, rest = joined(found.phrases, characters_max=most), covered + count, rest[count:]
            made = Summary(text=text, calls=found.calls, tokens_in=found.tokens_in, tokens_out=found.tokens_out)
            total = _added(total, self._usable(extractor.name, made))
        return Summary(text=text, calls=total.calls, tokens_in=total.tokens_in, tokens_out=total.tokens_out)

    async def _of_children(self, request: SummaryRequest) -> Summary:
        """What the children say together: as often asked as the budget makes necessary, and not at all where that is known."""
        if len(request.new) == 1 and len(request.new[0]) <= self._settings.text_characters_max:
            return Summary(text=request.new[0])
        key = Answers.key(self._summarizer.name, request.new)
        # An answer that comes after something was forgotten was asked of texts from before: it is put where nobody looks any more.
        answers = self._answers
        if (known := answers.get(key)) is not None:
            return known
        total, answer, rest = Cost(), "", request.new
        while rest:
            count = within_budget(rest, self._summarizer.tokens_max)
            covered = request.descendants * (len(request.new) - len(rest)) // len(request.new)
            made = await self._ask(replace(request, existing=answer, new=rest[:count], covered=covered))
            total = _added(total, made)
            answer, rest = made.text, rest[count:]
        answers.add(key, answer)
        return Summary(text=answer, calls=total.calls, tokens_in=total.tokens_in, tokens_out=total.tokens_out)

    async def _apply(self, changes: ChangeSet, parent: NodeId) -> Applied | Seen | Stale:
        """
        Apply under a lease on the parent, whose children's vectors change: planners on that path wait instead of being refused.

        Only now, after the model has answered: a model is never waited for under a lease. Without one the expectation suffices.
        """
        try:
            lease = await self._leases.acquire(changes.tree, exclusive=[parent], ttl=LEASE_TTL, wait=LEASE_WAIT)
        except LeaseBusyError:
            return await self._store.apply(changes)
        try:
            return await self._store.apply(changes, lease=lease)
        except LeaseLostError:
            # This process was stopped for longer than the lease lasts. The answer is paid for, and right if the version still is.
            return await self._store.apply(changes)
        finally:
            await self._leases.release(lease)

    async def _ask(self, request: SummaryRequest) -> Summary:
        name = self._summarizer.name
        return self._usable(name, await self._in_time(name, self._summarizer.summarize(request)))

    async def _in_time(self, name: str, asked: Awaitable[_Answer]) -> _Answer:
        seconds = self._settings.time_limit.total_seconds()
        try:
            with self.stages("model"):
                async with asyncio.timeout(seconds):
                    return await asked
        except TimeoutError as error:
            raise SummarizerError(f"{name} did not answer within {seconds:g} s") from error

    def _usable(self, name: str, summary: Summary) -> Summary:
        """The same, counted, if a store can keep it."""
        self.counts.calls += summary.calls
        self.counts.tokens_in += summary.tokens_in
        self.counts.tokens_out += summary.tokens_out
        most = self._settings.text_characters_max
        if not summary.text.strip():
            raise SummarizerAnswerError(f"{name} answered with an empty text")
        if len(summary.text) > most:
            raise SummarizerAnswerError(f"{name} answered with {len(summary.text):,} characters, at most {most:,} are taken")
        if _NO_TEXT.search(summary.text):
            raise SummarizerAnswerError(f"{name} answered with what no store keeps: NUL or half a surrogate pair")
        return summary


def _added(total: Cost, made: Summary) -> Cost:
    return Cost(
        calls=total.calls + made.calls,
        tokens_in=total.tokens_in + made.tokens_in,
        tokens_out=total.tokens_out + made.tokens_out,
    )


def _trim(node: Node, parent: NodeId, through: Mark) -> Rewrite:
    """The node as it is, without its contributions up to there."""
    assert node.vector is not None
    return Rewrite(
        node=node.id,
        parent=parent,
        vector=node.vector,
        cohesion=node.cohesion,
        through=through,
        provisional=node.provisional,
        text=node.text,
    )

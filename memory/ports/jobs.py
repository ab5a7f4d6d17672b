"""The queue between commits and the summary pool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from memory.model import NodeId, TreeId


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryJob:
    """Bring one summary node up to date. Carries no content: what is to be done is read from the store when it is worked on."""

    tree: TreeId
    node: NodeId
    attempt: int = 0
    """How often it was given back after a failure."""


class SummaryJobs(ABC):
    """
    Jobs by node, coalesced.

    A node that waits is not queued twice, and a node that is being worked on is worked on again afterwards if it was put
    meanwhile. One worker at a time has a node. A node that is delayed stays so when it is put. `done` and `retry` of a job that is
    not claimed do nothing. A claim that is cancelled loses no job.

    The queue may forget everything at a crash: jobs are made again from the store's dirty nodes.
    """

    @abstractmethod
    async def put(self, tree: TreeId, nodes: Sequence[NodeId]) -> None:
        """Queue the nodes; returns at once."""

    @abstractmethod
    async def claim(self) -> SummaryJob:
        """Wait for a job and take it. Trees take turns, so that one with much to do does not starve the others."""

    @abstractmethod
    async def done(self, job: SummaryJob) -> None:
        """The claimed job is finished; if its node was put meanwhile it waits again."""

    @abstractmethod
    async def retry(self, job: SummaryJob, *, after: float) -> None:
        """Give the claimed job back with one more attempt, to be had again after that many seconds."""

    @abstractmethod
    def backlog(self, tree: TreeId | None = None) -> int:
        """Jobs waiting, delayed or claimed; of one tree or of all."""

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
    seq: int = 0
    """The last commit that it is about: once the summary covers that one, nothing is left to do for it. 0: not known; whatever
    waits is to be done."""


class SummaryJobs(ABC):
    """
    Jobs by node, coalesced.

    A node that waits is not queued twice: the job is then about the later commit. A node that is being worked on is worked on again
    afterwards if it was put meanwhile. One worker of this process at a time has a node. A node that is delayed stays so when it is
    put. `done` and `retry` of a job that is not claimed do nothing. A claim that is cancelled loses no job.

    The queue may forget everything at a crash: jobs are made again from the store's dirty nodes.
    """

    @abstractmethod
    async def put(self, tree: TreeId, nodes: Sequence[NodeId], *, seq: int = 0) -> None:
        """Queue the nodes, which commit `seq` made dirty (0: not known which); returns at once."""

    @abstractmethod
    async def claim(self) -> SummaryJob:
        """Wait for a job and take it. Trees take turns, so that one with much to do does not starve the others."""

    @abstractmethod
    async def done(self, job: SummaryJob) -> None:
        """The claimed job is finished; if its node was put meanwhile it waits again."""

    @abstractmethod
    async def retry(self, job: SummaryJob, *, after: float, failed: bool = True) -> None:
        """Give the claimed job back, to be had again after that many seconds, with one more attempt if it failed."""

    @abstractmethod
    def hurry(self, tree: TreeId | None = None) -> None:
        """
        Let the jobs that are here now, of one tree or of all, be had without waiting for more contributions.

        Those that wait because of a failure, or for another worker, go on waiting. Meant for whoever waits for the summaries.
        """

    @abstractmethod
    def backlog(self, tree: TreeId | None = None) -> int:
        """Jobs waiting, delayed or claimed; of one tree or of all."""

"""What a strategy is: a question in, ranked nodes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from memory.model import NodeId, TreeId, Vector
from memory.ports.index import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of one tree."""

    tree: TreeId
    text: str
    vector: Vector
    """The text, embedded with purpose `query`: (d,) float32 of unit length."""
    k: int
    """Nodes wanted, 1 or more."""
    spare: int = 0
    """Further nodes, best next, to take the place of those that turn out to repeat another; they change nothing of the first k."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """The tree's, as it remembers them."""
    scope: Scope = field(default_factory=Scope)
    explain: bool = False
    """Fill `Ranked.parts` and `Ranking.trace`."""

    @property
    def most(self) -> int:
        """Nodes that a ranking may have."""
        return self.k + self.spare


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A node and its score."""

    node: NodeId
    score: float
    """Comparable within one ranking; higher is better."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """What the score is made of, by name; only when asked to explain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The best nodes, best first, at most `Question.most`."""

    ranked: tuple[Ranked, ...]
    seq: int
    """The commit that was looked at."""
    trace: tuple[str, ...] = ()
    """What the strategy did, a line a step; only when asked to explain."""


class Strategy(ABC):
    """A way to read a memory. Stateless between questions; safe for concurrent ones."""

    name: str
    """As in `--strategy`; one of `memory.retrieval.catalogue`, which also says with which structures it works."""
    embeds: bool = True
    """Whether it looks at the question's vector; otherwise that is zeros, and no model is asked."""

    @abstractmethod
    async def rank(self, question: Question) -> Ranking:
        """
        The best nodes for a question.

        Raises:
            QueryError: it cannot be answered as asked.
        """

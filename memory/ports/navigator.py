"""Who decides where to go next on a walk through a memory (HAT's agent)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from memory.model import NodeId


class Action(StrEnum):
    """What can be done at a node. The paper gives U both to "Up" and to "insufficient"; here the latter has a letter of its own."""

    UP = "U"
    """To the parent."""
    DOWN = "D"
    """To the child nearest to the question that was not visited yet."""
    LEFT = "L"
    """To the node before, in the same layer."""
    RIGHT = "R"
    """To the node after, in the same layer."""
    RESET = "S"
    """Back to the root."""
    SUFFICIENT = "O"
    """The text here suffices to respond: the walk ends here."""
    INSUFFICIENT = "I"
    """Nothing that suffices is to be found: the walk ends."""


MOVES = (Action.UP, Action.DOWN, Action.LEFT, Action.RIGHT, Action.RESET)
"""Actions that go somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where a move would lead."""

    node: NodeId
    similarity: float
    """Cosine with the question; 0 for a node without a vector."""
    visited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkStep:
    """One action of a walk, and why."""

    layer: int
    node: int
    """Number of the node in its layer, from 0, counted from the oldest."""
    action: Action | None
    """None where the answer was no action."""
    reason: str
    error: str = ""
    """Why it was not carried out; empty when it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known at one node of a walk."""

    question: str
    layer: int
    """0 is the root."""
    node: int
    """Number in the layer, from 0."""
    layers: int
    nodes: int
    """In this layer."""
    text: str
    """What the node says."""
    similarity: float
    """Cosine of this node with the question."""
    walk: Sequence[WalkStep]
    """From the root to here."""
    moves_left: int
    """This one included, at least 1."""
    ways: Mapping[Action, Way] = field(default_factory=dict)
    """Moves that are allowed here."""
    read: bool = False
    """Whether all leaves below this node are in sight already, so that nothing is gained by going down."""

    @property
    def error(self) -> str:
        """What was wrong with the last action; empty when nothing was."""
        return self.walk[-1].error if self.walk else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is to be done next."""

    action: Action | None
    """None when the answer was no action; it is told so and asked again, within the moves that are left."""
    reason: str


class Navigator(ABC):
    """
    Chooses the next action of a walk.

    Stateless: everything it may know is in the situation. Safe for concurrent walks. An action that is not allowed is answered with
    an error in the next situation and uses up a move, so that no navigator can walk for ever.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Scheme and model, e.g. `similarity` or `openai:gpt-5-mini`."""

    @abstractmethod
    async def choose(self, situation: Situation) -> Choice:
        """
        Choose what to do.

        Raises:
            NavigatorError: it is away, or refused for now.
        """

    async def close(self) -> None:  # noqa: B027  # most hold nothing
        """Release what it holds; it is not used afterwards."""

"""Hits into a token budget, in time order, nothing said twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memory.model import NodeId
from memory.ports.summarizer import estimate_tokens

_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One hit as it would stand in a prompt."""

    node: NodeId
    text: str
    """Ready for the prompt, with its speaker and date."""
    path: tuple[NodeId, ...] = ()
    """Its ancestors, uppermost first."""
    at: datetime | None = None
    """When it was said; None for a summary, and for what has no time."""
    sequence: str | None = None
    """The conversation or document it belongs to."""
    position: int = 0
    """Place in that sequence, for what was said at one time."""
    covered: bool = True
    """For a summary: its text covers every leaf below it. One that does not leaves out nothing it covers by accident."""


def pack(passages: Sequence[Passage], *, tokens_max: int) -> list[Passage]:
    """
    Choose passages for a prompt.

    Best first, each is taken when it fits into what is left; one that is too long is passed over for shorter ones further down.
    A leaf or summary below a chosen summary is left out, and so is a summary above something chosen: whichever ranked higher
    speaks for both. A leaf below a summary that does not cover all its leaves yet is not left out.

    Args:
        passages: best first; of equal texts only the first is taken.
        tokens_max: budget, in tokens of about four characters, line ends included.

    Returns:
        Those chosen: summaries first, in the order given, then the rest by time; what was said at one time by place.
    """
    left = tokens_max
    chosen: list[tuple[int, Passage]] = []
    speaking: set[NodeId] = set()
    spoken_for: set[NodeId] = set()
    texts: set[str] = set()
    for rank, passage in enumerate(passages):
        cost = estimate_tokens(passage.text + "\n")
        if cost > left or passage.text in texts or passage.node in spoken_for or not speaking.isdisjoint(passage.path):
            continue
        chosen.append((rank, passage))
        left -= cost
        texts.add(passage.text)
        spoken_for.update(passage.path)
        if passage.covered:
            speaking.add(passage.node)
    chosen.sort(key=lambda pair: _place(pair[1], pair[0]))
    return [passage for _, passage in chosen]


def _place(passage: Passage, rank: int) -> tuple[bool, datetime, str, int, int]:
    if passage.at is None:
        return (passage.sequence is not None, _LAST, passage.sequence or "", passage.position, rank)
    return (True, passage.at, passage.sequence or "", passage.position, rank)

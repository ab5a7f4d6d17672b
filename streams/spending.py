"""
Where the time of one batch or one summary went: collected from whatever runs on its behalf, also in tasks that it starts.

What is told here is on the batch's line in the log, and in its trace where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from streams import tracing

_spent: ContextVar[dict[str, float] | None] = ContextVar("banyan_spent", default=None)


@contextmanager
def spending() -> Iterator[dict[str, float]]:
    """Collect seconds by stage; tasks that are started inside add to the same."""
    spent: dict[str, float] = {}
    token = _spent.set(spent)
    try:
        yield spent
    finally:
        _spent.reset(token)


def begin() -> dict[str, float]:
    """Collect anew from here on, for the rest of this task."""
    spent: dict[str, float] = {}
    _spent.set(spent)
    return spent


def spend(stage: str, seconds: float) -> None:
    """A stage has just ended, after so long."""
    tracing.stage(stage, seconds)
    spent = _spent.get()
    if spent is not None:
        spent[stage] = spent.get(stage, 0.0) + seconds


def milliseconds(spent: dict[str, float], stages: tuple[str, ...]) -> dict[str, float]:
    """`embed_ms` and so on, for a line of the log; 0 for what did not happen."""
    return {f"{stage}_ms": round(spent.get(stage, 0.0) * 1000, 1) for stage in stages}

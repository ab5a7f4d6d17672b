"""Whether a worker is well, and whether it has everything it needs: what `/healthz` and `/readyz` answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from memory.errors import (
    EmbedderError,
    StoreBusyError,
    StoreUnavailableError,
    SummarizerError,
    TransientError,
)
from streams.broker import BrokerUnavailableError

DEPENDENCIES = ("kafka", "store", "embedder", "summarizer")
_OF: Mapping[type[TransientError], str] = {
    BrokerUnavailableError: "kafka",
    StoreBusyError: "store",
    StoreUnavailableError: "store",
    EmbedderError: "embedder",
    SummarizerError: "summarizer",
}


@dataclass(slots=True)
class Health:
    """
    One worker's, put together when it is asked for; any thread may ask.

    What is missing is told by name and kind of error. The error's text is in the log: it may name addresses.
    """

    unwell: Callable[[], str | None] = lambda: None
    """Why the worker is on its way to be ended."""
    waited_for: Callable[[], Iterable[TransientError]] = tuple
    """The errors that are waited out just now."""
    state: str = "is starting"
    """What the worker itself is short of; empty when it works."""
    missing: dict[str, str] = field(default_factory=dict)
    """Dependencies that did not answer when they were last asked, with the kind of error."""

    def away(self) -> dict[str, str]:
        """Dependencies that are missing, with the kind of error."""
        found = dict(self.missing)
        for error in self.waited_for():
            if (name := dependency(error)) is not None:
                found[name] = type(error).__name__
        return found

    def alive(self) -> tuple[bool, dict[str, object]]:
        """Whether the process is to be left running, and the answer that says so."""
        reason = self.unwell()
        return (True, {"status": "ok"}) if reason is None else (False, {"status": "failing", "reason": reason})

    def ready(self) -> tuple[bool, dict[str, object]]:
        """Whether the worker works and has what it needs, and the answer that says what is missing."""
        missing = self.away()
        if self.state:
            missing["worker"] = self.state
        if (reason := self.unwell()) is not None:
            missing["worker"] = reason
        return (False, {"status": "not ready", "missing": missing}) if missing else (True, {"status": "ready"})


def dependency(error: BaseException) -> str | None:
    """Which dependency an error is about; None when it is about none, as when others are faster."""
    return next((name for kind, name in _OF.items() if isinstance(error, kind)), None)

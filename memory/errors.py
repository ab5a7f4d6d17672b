"""
Every error that leaves Banyan's domain, split by what the caller does next.

`TransientError`: try again, after `retry_after` seconds when it says so. `PermanentError`: trying again changes nothing; the
record, the setting or the file is at fault. The message says what happened, where, and what to do; vendor errors are chained as
causes, translated once, at the edge of their adapter.
"""

from __future__ import annotations


class BanyanError(Exception):
    """Root of all errors raised by Banyan on purpose."""


class TransientError(BanyanError):
    """
    A dependency is busy or away; the same call may succeed later.

    Args:
        message: what happened and where.
        retry_after: seconds the dependency asked to wait, or None when it did not say.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PermanentError(BanyanError):
    """Repeating the call cannot help."""


class RecordError(PermanentError, ValueError):
    """
    A record that cannot be taken: `field` names what is wrong with it, `reason` says why.

    Args:
        field: the record's field, or "record" when it is the whole.
        reason: what is wrong, for people; never more than an excerpt of the value.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class SettingError(PermanentError, ValueError):
    """A setting that cannot work; the message names it and says what to set instead."""


class TreeNotFoundError(PermanentError, LookupError):
    """No tree of that name in this store."""


class TreeMismatchError(PermanentError, ValueError):
    """The tree was made with another embedding model, dimension or structure than the one configured."""


class NoWeightsError(PermanentError, ValueError):
    """Feedback was given to a tree whose structure keeps no weights."""


class NodeNotFoundError(PermanentError, LookupError):
    """No node of that id in this tree."""


class QueryError(PermanentError, ValueError):
    """
    A query that cannot be answered as asked: unknown strategy or filter, k out of range, empty text.

    Args:
        message: what cannot be taken, and what can.
        field: the argument that it is about, "query" when it is the whole.
    """

    def __init__(self, message: str, *, field: str = "query") -> None:
        super().__init__(message)
        self.field = field


class StoreBusyError(TransientError):
    """Another process holds the store longer than the configured wait."""


class StoreUnavailableError(TransientError):
    """The store cannot write now: disk full, read-only folder, connection lost."""


class ClosedError(PermanentError):
    """The memory was closed; open it again."""


class StoreDamagedError(PermanentError):
    """The store's file cannot be read as a Banyan store, or its content contradicts itself."""


class StoreVersionError(PermanentError):
    """The store was written by a newer Banyan than this one."""


class ContentionError(TransientError):
    """A commit was refused more often than the configured bound because others changed the same path."""


class LeaseBusyError(TransientError):
    """A path lease could not be had within the wait that was given."""


class LeaseLostError(TransientError):
    """The lease expired or was taken over; nothing was written with it."""


class ClaimBusyError(TransientError):
    """Another worker is summarizing the node."""


class EmbedderError(TransientError):
    """The embedding model could not be reached or refused for now (429, 5xx, time-out)."""


class EmbedderAnswerError(PermanentError):
    """The embedding model answered with something that is no embedding: NaN, a wrong dimension, too few vectors."""


class SummarizerError(TransientError):
    """The summarizer could not be reached or refused for now (402, 429, 5xx, time-out)."""


class SummarizerAnswerError(TransientError):
    """The summarizer answered, but not with a usable text: empty, refused, truncated, or too long. Worth a bounded retry."""


class LabelError(TransientError):
    """What says where things belong could not be reached, refused for now, or said nothing usable."""


class NavigatorError(TransientError):
    """What chooses the moves of an agent's walk could not be reached or refused for now (402, 429, 5xx, time-out)."""


class FilterError(TransientError):
    """What filters a context is away, refused for now, or gave what is not of the memory; the context stays as it was found."""


NOT_THE_RECORD = (SettingError, StoreDamagedError, StoreVersionError)
"""Permanent errors that every other record, or node, would meet too: a key or password that is not taken any more, a store that is
damaged or too new. Nothing is given up for them; who meets one in the middle of its work cannot go on."""

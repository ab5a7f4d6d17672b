"""Settings of the domain, one frozen value a concern. Nothing here reads the environment; `streams.settings` does."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """How items go in."""

    batch_items: int = 64
    """Items planned and committed together, 1 to 1,024. One commit costs one fsync, so larger batches are faster and each item
    waits longer; above 64 the gain was under 10 %."""
    chunk_tokens: int = 256
    """Longest chunk of a document, in tokens (estimated as characters / 4), 32 to 4,096. 256 fills the local model's window."""
    turn_characters_max: int = 32_768
    """Longest text of a turn, in characters; longer ones are refused, since a turn is one leaf."""
    document_characters_max: int = 1_000_000
    """Longest text of a document, in characters."""
    attempts_max: int = 50
    """Times a commit is planned again because others changed its path, before the caller gets `ContentionError`."""
    embedder_patience: timedelta = timedelta(minutes=10)
    """How long a batch waits for an embedding model that is away, over all attempts, before the caller gets `EmbedderError`."""
    lease_after: int | None = None
    """Refusals of a commit after which its paths are leased between planning and committing; 0 leases them always. Without it 0
    for a store in a file, where a lease costs microseconds and keeps summaries that are being written from refusing every commit;
    in Redis, where it costs two round trips and makes others wait, 3 for a batch of 8 items at most and 1 for a larger one."""
    lease_ttl: timedelta = timedelta(seconds=10)
    """Life of such a lease: far above the milliseconds a commit takes, short enough that a dead holder is not waited for long."""
    lease_wait: timedelta = timedelta(seconds=5)
    """Longest wait for such a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarySettings:
    """How summaries are kept up to date."""

    workers: int = 4
    """Summaries in the making at once in this process, 1 to 256. With a remote model: how many calls may run."""
    tree_max: int = 0
    """Of those, how many may be of one tree; 0 for no limit. Trees take turns anyway; with a limit, calls stay free for a tree that
    has none under way, so that it need not wait for the end of another's."""
    attempts_max: int = 5
    """Unusable answers for one node in a row before it is given up until its next contribution; it stays visibly pending. A model
    that is away does not count: it is waited for."""
    linger: timedelta = timedelta(seconds=10)
    """Wait from a node's first contribution until its summary is made by a model that is paid for (the extractive one makes it at
    once), 0 to 1 hour: the longer, the more contributions one call takes in, and the longer a summary lags behind."""
    backoff: timedelta = timedelta(seconds=1)
    """First wait after a failure; doubles up to `backoff_max`. A longer Retry-After of the model is honoured."""
    backoff_max: timedelta = timedelta(seconds=60)
    """Longest wait between attempts."""
    time_limit: timedelta = timedelta(seconds=120)
    """Longest time one summary may take; then it counts as failed."""
    text_characters_max: int = 8_000
    """Longest summary that is taken; a longer answer counts as a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """How questions are answered."""

    k_max: int = 1_000
    """Most hits one query may ask for."""
    query_characters_max: int = 8_192
    """Longest query; the embedding model sees only its first window anyway."""
    view_bytes_max: int = 2_000_000_000
    """Memory for views of trees, over all trees; the least recently used are dropped."""
    bm25_k1: float = 0.9
    """How much it counts that a text repeats a word of the question, 0 to 10: 0 not at all. 0.9 did better on conversations than
    the usual 1.2 (decision 0003). May change at any time."""
    bm25_b: float = 0.4
    """How much long texts are held back, 0 (not at all) to 1 (in proportion to their length); 0.4 did better than the usual 0.75.
    May change at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Everything the domain can be told."""

    ingest: IngestSettings = field(default_factory=IngestSettings)
    summaries: SummarySettings = field(default_factory=SummarySettings)
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)

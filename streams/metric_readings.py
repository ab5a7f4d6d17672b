"""The plain numbers that workers keep, as readings of the metrics; asked for by the thread that answers, while the loop goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streams.health import DEPENDENCIES, Health
from streams.metrics import Reading
from streams.pipelines import Ingesting, Summarizing
from streams.progress import Progress

if TYPE_CHECKING:
    from streams.dead_letters import DeadLetters
    from streams.retrying import Retry


def of_worker(health: Health, progress: Progress) -> Iterator[Reading]:
    """What every worker has."""
    yield Reading("banyan_healthy", health.alive()[0])
    yield Reading("banyan_ready", health.ready()[0])
    away = health.away()
    for name in DEPENDENCIES:
        yield Reading("banyan_dependency_up", name not in away, (name,))
    yield Reading("banyan_rebalances_total", progress.rebalances)
    held = progress.held
    now = time.monotonic()
    oldest = 0.0
    for name, topic in list(progress.topics.items()):
        yield Reading("banyan_partitions_held", len(held.get(name, ())), (name,))
        yield Reading("banyan_records_taken_total", topic.taken, (name,))
        yield Reading("banyan_records_acknowledged_total", topic.acknowledged, (name,))
        yield Reading("banyan_records_in_hand", topic.in_hand, (name,))
        since = topic.in_hand_since
        oldest = max(oldest, now - since if since is not None else 0.0)
    yield Reading("banyan_oldest_in_hand_seconds", oldest)
    for (name, number), state in list(progress.partitions.items()):
        if state.look is not None:
            yield Reading("banyan_consumer_lag_records", state.look.lag, (name, str(number)))


def of_pipeline(pipeline: Any) -> Iterator[Reading]:
    """What a worker of its kind has; nothing before it is open."""
    if isinstance(pipeline, Ingesting):
        yield from _of_ingesting(pipeline)
    elif isinstance(pipeline, Summarizing):
        yield from _of_summarizing(pipeline)


def _of_ingesting(pipeline: Ingesting) -> Iterator[Reading]:
    batches = pipeline.batches
    yield from _of_shared(batches.retry, batches.dead)
    for outcome in ("accepted", "duplicate", "conflict", "forgotten"):
        yield Reading("banyan_events_total", batches.counters.events[outcome] + pipeline.opinions.events[outcome], (outcome,))
    for outcome in ("forgotten", "unknown", "already"):
        yield Reading("banyan_forgets_total", pipeline.erasures.events[outcome], (outcome,))
    yield Reading("banyan_leaves_forgotten_total", pipeline.erasures.leaves)
    done = batches.ingest.counters
    yield Reading("banyan_items_committed_total", done.items)
    yield Reading("banyan_commits_total", done.commits)
    yield Reading("banyan_commit_conflicts_total", done.refused)
    yield Reading("banyan_commits_leased_total", done.leased)
    yield Reading("banyan_lease_timeouts_total", done.unleased)
    yield Reading("banyan_contributions_added_total", done.contributions)
    yield Reading("banyan_summary_jobs_sent_total", batches.counters.jobs)
    yield Reading("banyan_summary_jobs_again_total", batches.counters.jobs_again)
    if (labelling := batches.ingest.labelling) is not None:
        yield Reading("banyan_items_labelled_total", labelling.counters.labelled)
        yield Reading("banyan_items_unlabelled_total", labelling.counters.unlabelled)
        yield Reading("banyan_label_calls_failed_total", labelling.counters.failed)
        yield Reading("banyan_labels_resting", labelling.resting)
    yield Reading("banyan_views", len(pipeline.views))
    yield Reading("banyan_view_bytes", pipeline.views.bytes)


def _of_summarizing(pipeline: Summarizing) -> Iterator[Reading]:
    yield from _of_shared(pipeline.retry, pipeline.dead)
    oldest = pipeline.jobs.oldest()
    yield Reading("banyan_summary_backlog_jobs", pipeline.jobs.backlog())
    yield Reading("banyan_summary_oldest_job_seconds", max(0.0, time.time() - oldest) if oldest else 0.0)
    if (found := pipeline.waiting.found) is not None:
        yield Reading("banyan_contributions_pending", found.contributions)
        yield Reading("banyan_summaries_pending", found.nodes)
    counts = pipeline.pool.counts
    yield Reading("banyan_contributions_covered_total", counts.covered)
    yield Reading("banyan_summaries_written_total", counts.written)
    yield Reading("banyan_summary_jobs_skipped_total", counts.skipped)
    yield Reading("banyan_summary_claims_busy_total", counts.busy)
    yield Reading("banyan_summary_attempts_failed_total", counts.failed)
    yield Reading("banyan_summaries_given_up_total", counts.given_up)
    yield Reading("banyan_llm_calls_total", counts.calls)
    yield Reading("banyan_llm_tokens_total", counts.tokens_in, ("in",))
    yield Reading("banyan_llm_tokens_total", counts.tokens_out, ("out",))
    if (throttle := pipeline.throttle) is not None:
        yield Reading("banyan_llm_waited_seconds_total", throttle.waited_s)
        yield Reading("banyan_llm_put_off_total", throttle.refused)
        yield Reading("banyan_llm_pauses_total", throttle.pauses)


def _of_shared(retry: Retry, dead: DeadLetters) -> Iterator[Reading]:
    for what, count in list(retry.failures_of.items()):
        yield Reading("banyan_retries_total", count, (what,))
    for topic, count in list(dead.counts.items()):
        yield Reading("banyan_dead_letters_total", count, (topic,))

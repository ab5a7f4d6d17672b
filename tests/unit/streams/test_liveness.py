"""A worker is judged by what it does."""

from __future__ import annotations

from collections.abc import Sequence

from streams.deliveries import Delivery
from streams.liveness import LOOP_SILENT_MAX, STOPPED, Watchdog
from streams.progress import PASSED_OVER_BATCHES, Limits, PartitionLook, Progress

LIMITS = Limits(stall=60, in_hand=1_000, outcast=30)


def records(*offsets: int, partition: int = 0, topic: str = "turns") -> list[Delivery]:
    return [Delivery(topic=topic, partition=partition, offset=offset, key=None, value=None) for offset in offsets]


def look(
    *,
    end: int = 0,
    position: int | None = None,
    delivered: int | None = None,
    committed: int | None = None,
    partition: int = 0,
    topic: str = "turns",
) -> PartitionLook:
    """All that is on the broker has been fetched, where nothing else is said."""
    return PartitionLook(
        topic=topic,
        partition=partition,
        end=end,
        position=end if position is None else position,
        delivered=delivered,
        committed=committed,
    )


def done(progress: Progress, now: float, batch: Sequence[Delivery]) -> None:
    progress.taken(now, batch)
    progress.done(now, batch)


def verdict(progress: Progress, now: float) -> str:
    return progress.verdict(now, LIMITS) or ""


def test_a_worker_with_nothing_to_do_is_well() -> None:
    progress = Progress()
    progress.looked(0, [])
    assert verdict(progress, 1e9) == ""
    progress.looked(0, [look(end=7, delivered=6, committed=7)])
    assert verdict(progress, 1e9) == ""


def test_records_that_wait_on_the_broker_while_none_is_in_hand_are_a_stall() -> None:
    progress = Progress()
    progress.looked(10, [look(end=9, position=4)])
    assert verdict(progress, 69) == ""
    assert "5 records of turns have waited for 61 s" in verdict(progress, 71)


def test_records_that_were_fetched_and_reach_no_agent_are_a_stall() -> None:
    progress = Progress()
    done(progress, 0, records(0, 1, 2))
    # The client is at the end: all that is missing lies in Faust's buffer.
    progress.looked(10, [look(end=9, delivered=8, committed=3)])
    assert verdict(progress, 69) == ""
    assert "6 records of turns have waited for 61 s and none was taken" in verdict(progress, 71)


def test_a_topic_that_goes_on_does_not_hide_one_that_stands() -> None:
    progress = Progress()
    for now in range(0, 80, 10):
        done(progress, now, records(now, topic="turns"))
        progress.looked(now, [look(end=now + 1, delivered=now, committed=now + 1), look(end=9, position=4, topic="documents")])
    assert "5 records of documents have waited for 70 s" in verdict(progress, 70)


def test_a_record_that_batches_pass_over_is_lost_to_its_agent() -> None:
    progress = Progress()
    for now in range(PASSED_OVER_BATCHES):
        stuck = look(end=5, delivered=4, committed=4, partition=1)
        progress.looked(now, [look(end=now, delivered=now - 1, committed=now), stuck])
        assert verdict(progress, now) == ""
        done(progress, now, records(now))
    assert "a record of turns[1] was fetched" in verdict(progress, PASSED_OVER_BATCHES)


def test_what_others_committed_meanwhile_waits_no_more() -> None:
    progress = Progress()
    done(progress, 0, records(0, 1))
    for now in range(0, 300, 10):
        progress.looked(now, [look(end=200, delivered=100, committed=200)])
        assert verdict(progress, now) == ""


def test_a_marker_of_a_transaction_is_no_record() -> None:
    progress = Progress()
    done(progress, 0, records(0, 1))
    for now in range(0, 300, 10):
        progress.looked(now, [look(end=3, position=3, delivered=1, committed=2)])
        assert verdict(progress, now) == ""


def test_records_that_wait_behind_a_batch_in_hand_are_none() -> None:
    progress = Progress()
    progress.taken(0, records(*range(200)))
    for now in range(0, 900, 10):
        progress.looked(now, [look(end=5_000, position=4_000, delivered=3_999)])
        assert verdict(progress, now) == ""


def test_a_batch_that_ends_begins_the_count_anew() -> None:
    progress = Progress()
    waiting = [look(end=20, position=10)]
    progress.looked(0, waiting)
    progress.taken(50, records(5))
    progress.done(55, records(5))
    progress.looked(60, [look(end=20, position=10, committed=6)])
    assert verdict(progress, 100) == ""
    assert verdict(progress, 121) != ""


def test_in_hand_for_ever_ends_before_the_client_leaves_its_group() -> None:
    progress = Progress()
    batch = records(*range(10))
    progress.taken(0, batch)
    progress.done(900, batch[:4])
    assert verdict(progress, 1_800) == ""
    assert "nothing of turns was acknowledged for 1001 s with 6 in hand" in verdict(progress, 1_901)


def test_what_is_acknowledged_must_be_committed() -> None:
    progress = Progress()
    done(progress, 0, records(0, 1, 2))
    for now in range(0, 61, 10):
        progress.looked(now, [look(end=3, delivered=2, committed=1)])
        assert verdict(progress, now) == ""
    assert "what was acknowledged of turns[0] has not been committed for 61 s" in verdict(progress, 71)
    progress.looked(72, [look(end=3, delivered=2, committed=3)])
    assert verdict(progress, 1e6) == ""


def test_a_worker_that_the_broker_does_not_know_is_thrown_out() -> None:
    progress = Progress()
    for now in (0, 10, 20, 30):
        progress.looked(now, [look(end=3, delivered=2, committed=3)], member=False)
        assert verdict(progress, now) == ""
    assert "has not had this worker in its group for 31 s" in verdict(progress, 31)
    progress.looked(32, [], member=True)
    assert verdict(progress, 1e6) == ""


def test_a_broker_that_is_away_is_not_held_against_the_worker() -> None:
    progress = Progress()
    progress.looked(0, [look(end=9, position=4)], member=False)
    progress.grouped(0, rebalancing=True)
    progress.unseen()
    assert verdict(progress, 1e6) == ""


def test_a_partition_that_went_to_another_worker_is_forgotten() -> None:
    progress = Progress()
    done(progress, 0, records(0, 1))
    progress.looked(0, [look(end=9, position=4), look(end=9, partition=1)])
    assert progress.held == {"turns": [0, 1]}
    progress.looked(10, [look(end=9, partition=1)])
    assert progress.held == {"turns": [1]}
    assert verdict(progress, 1e6) == ""


def test_a_rebalance_that_never_ends_is_a_stall() -> None:
    progress = Progress()
    for now in range(0, 61, 10):
        progress.grouped(now, rebalancing=True)
        assert verdict(progress, now) == ""
    assert "sharing its partitions anew for 61 s" in verdict(progress, 61)
    progress.grouped(62, rebalancing=False)
    assert verdict(progress, 1e6) == ""


def test_a_loop_that_hangs_is_noticed_and_is_unwell_before_it_is_ended() -> None:
    progress = Progress()
    watchdog = Watchdog(progress, LIMITS, end=lambda _: None)
    seen = [(watchdog.verdict(now), watchdog.unwell) for now in range(LOOP_SILENT_MAX + 1)]
    unwell = [reason is not None for _, reason in seen]
    ended = [reason is not None for reason, _ in seen]
    assert unwell.index(True) < ended.index(True) == LOOP_SILENT_MAX
    progress.beats += 1
    assert watchdog.verdict(LOOP_SILENT_MAX + 1) is None
    assert watchdog.unwell is None


def test_a_process_that_was_stopped_as_a_whole_has_not_hung() -> None:
    progress = Progress()
    watchdog = Watchdog(progress, LIMITS, end=lambda _: None)
    progress.looked(0, [look(end=9, position=4)])
    assert watchdog.verdict(1) is None
    assert watchdog.verdict(1 + STOPPED + 1_000) is None
    assert watchdog.unwell is None


def test_half_of_the_way_makes_it_unwell() -> None:
    progress = Progress()
    watchdog = Watchdog(progress, LIMITS, end=lambda _: None)
    progress.looked(0, [look(end=9, position=4)])
    for now in range(62):
        progress.beats += 1
        reason = watchdog.verdict(now)
        assert (watchdog.unwell is not None) == (now > LIMITS.stall / 2)
        assert (reason is not None) == (now > LIMITS.stall)

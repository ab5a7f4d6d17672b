"""A worker is judged by what it does."""

from __future__ import annotations

from streams.liveness import LOOP_SILENT_MAX, Progress, Watchdog


def watched(progress: Progress) -> Watchdog:
    return Watchdog(progress, stall=60, in_hand_max=1_000, end=lambda _: None)


def verdict(progress: Progress, now: float) -> str | None:
    progress.beats += 1
    return watched(progress).verdict(now)


def test_a_worker_with_nothing_to_do_is_well() -> None:
    progress = Progress()
    progress.looked(0, partitions=0, lag=0)
    assert verdict(progress, 1e9) is None


def test_records_that_wait_while_none_is_in_hand_are_a_stall() -> None:
    progress = Progress()
    progress.looked(10, partitions=2, lag=5)
    assert verdict(progress, 69) is None
    assert "5 records have waited for 61 s" in (verdict(progress, 71) or "")


def test_records_that_wait_behind_a_batch_in_hand_are_none() -> None:
    progress = Progress()
    progress.taken(0, 200)
    for now in range(0, 900, 10):
        progress.looked(now, partitions=2, lag=5_000)
        assert verdict(progress, now) is None


def test_a_batch_that_ends_begins_the_count_anew() -> None:
    progress = Progress()
    progress.looked(0, partitions=2, lag=5)
    progress.taken(50, 5)
    progress.done(55, 5)
    progress.looked(60, partitions=2, lag=5)
    assert verdict(progress, 100) is None
    assert verdict(progress, 121) is not None


def test_in_hand_for_ever_ends_before_the_client_leaves_its_group() -> None:
    progress = Progress()
    progress.taken(0, 10)
    progress.done(900, 4)
    assert verdict(progress, 1_800) is None
    assert "nothing was acknowledged for 1001 s" in (verdict(progress, 1_901) or "")


def test_a_loop_that_hangs_is_noticed_and_a_process_that_was_stopped_is_not() -> None:
    progress = Progress()
    watchdog = watched(progress)
    # Time that jumps is no silence: nobody looked meanwhile.
    assert watchdog.verdict(0) is None
    assert watchdog.verdict(1e6) is None
    for _ in range(LOOP_SILENT_MAX - 2):
        assert watchdog.verdict(1e6) is None
    assert "the event loop has not answered" in (watchdog.verdict(1e6) or "")
    progress.beats += 1
    assert watchdog.verdict(1e6) is None


def test_a_rebalance_that_never_ends_is_a_stall() -> None:
    progress = Progress()
    for now in range(0, 61, 10):
        progress.grouped(now, rebalancing=True)
        assert verdict(progress, now) is None
    assert "sharing its partitions anew for 61 s" in (verdict(progress, 61) or "")
    progress.grouped(62, rebalancing=False)
    assert verdict(progress, 1e6) is None

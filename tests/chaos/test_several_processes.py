"""Two and three processes write one tree at once, each with its own summary pool."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.crew import assert_nothing_lost, finish, ids, start
from tests.chaos.worker import Share

RECORDS = int(os.environ.get("BANYAN_CHAOS_RECORDS", "400"))


@pytest.mark.parametrize("count", [2, 3])
def test_effect_once_and_refusals_bounded(tmp_path: Path, count: int) -> None:
    # None gives up waiting for the others, however long the machine keeps one of them from its work.
    shares = [Share(folder=str(tmp_path), records=RECORDS, first=first, step=count, lease_wait=120.0) for first in range(count)]
    workers = [start(share) for share in shares]
    answers = [finish(worker) for worker in workers]
    print(answers)
    assert sum(answer["accepted"] for answer in answers) == RECORDS
    assert sum(answer["again"] for answer in answers) == 0
    commits = sum(answer["commits"] for answer in answers)
    assert sum(answer["refused"] for answer in answers) <= commits
    asyncio.run(assert_nothing_lost(shares[0], {name for share in shares for name in ids(share)}))


def test_without_leases_expectations_alone_keep_it_right(tmp_path: Path) -> None:
    shares = [
        Share(folder=str(tmp_path), records=RECORDS // 2, first=first, step=2, gate=False, attempts_max=500) for first in (0, 1)
    ]
    workers = [start(share) for share in shares]
    assert sum(finish(worker)["accepted"] for worker in workers) == RECORDS // 2
    asyncio.run(assert_nothing_lost(shares[0], {name for share in shares for name in ids(share)}))


def test_the_same_records_from_two_processes_go_in_once(tmp_path: Path) -> None:
    share = Share(folder=str(tmp_path), records=RECORDS // 2)
    answers = [finish(worker) for worker in [start(share), start(share)]]
    assert sum(answer["accepted"] for answer in answers) == RECORDS // 2
    assert sum(answer["duplicates"] for answer in answers) == RECORDS // 2
    asyncio.run(assert_nothing_lost(share, set(ids(share))))


def test_while_one_is_stopped_with_its_lease_the_other_goes_on(tmp_path: Path) -> None:
    """SIGSTOP between planning and committing; its lease ends, and when it goes on it plans again."""
    other = Share(folder=str(tmp_path), records=RECORDS // 2, first=1, step=2, lease_ttl=1.0, lease_wait=0.5)
    sleeper = replace(other, first=0, stop_at=5)
    with start(sleeper) as stopped:
        while not Path(tmp_path, "stopped").exists():
            assert stopped.poll() is None
            time.sleep(0.01)
        try:
            answer = finish(start(other))
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        assert answer["accepted"] == len(ids(other)), "all of it while the first was stopped"
        assert answer["leased"] == 0
        late = finish(stopped)
    assert late["accepted"] == len(ids(sleeper))
    assert late["refused"] >= 1
    asyncio.run(assert_nothing_lost(other, {*ids(other), *ids(sleeper)}))

"""A rewriting of a file is shared by those who ask for it before it begins."""

from __future__ import annotations

import threading

import pytest

from memory.adapters.embedded.scrubbing import Shared


def test_those_who_come_while_it_runs_share_the_next_one() -> None:
    begun, go_on = threading.Event(), threading.Event()
    runs = []

    def work() -> None:
        runs.append(threading.get_ident())
        begun.set()
        go_on.wait(60)

    shared = Shared(work)
    first = threading.Thread(target=shared)
    first.start()
    assert begun.wait(60)
    others = [threading.Thread(target=shared) for _ in range(5)]
    for other in others:
        other.start()
    while shared.asked < 6:
        threading.Event().wait(0.01)
    go_on.set()
    for thread in (first, *others):
        thread.join(60)
    assert len(runs) == 2
    shared()
    assert len(runs) == 3


def test_one_that_fails_counts_for_nobody() -> None:
    outcomes = [ZeroDivisionError(), None]

    def work() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    shared = Shared(work)
    with pytest.raises(ZeroDivisionError):
        shared()
    shared()
    assert outcomes == []

"""
Many seeds of the workers' own loops: whatever happened, nothing is acknowledged too early, lost, doubled or left over.

    BANYAN_SIMULATION_SEEDS=100000 python -m pytest tests/simulation/test_pipeline.py -s
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.simulation.pipeline import simulate
from tests.simulation.simulation import template

SEEDS = int(os.environ.get("BANYAN_SIMULATION_SEEDS", "2000"))
FIRST = int(os.environ.get("BANYAN_SIMULATION_FIRST", "0"))
CHUNK = 50
PROCESSES = 2


def run(first: int) -> Counter[str]:
    """A chunk of seeds, in a process of its own; what they went through."""
    met: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="banyan-") as name:
        folder = Path(name)
        empty = template(folder)
        for seed in range(first, min(first + CHUNK, FIRST + SEEDS)):
            try:
                simulation = simulate(seed, folder / str(seed), empty)
            except BaseException as error:
                raise AssertionError(f"seed {seed}; replay it with: python -m tests.simulation.pipeline {seed}") from error
            met += simulation.met
            met.update(seeds=1, operations=len(simulation.history), rebalances=simulation.broker.rebalances)
            shutil.rmtree(folder / str(seed))
    return met


@pytest.mark.slow
@pytest.mark.timeout(max(900, SEEDS))
def test_seeds() -> None:
    met: Counter[str] = Counter()
    # Spawned: a process that was forked off a test run would have its threads' locks, and not the threads.
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        for chunk in pool.map(run, range(FIRST, FIRST + SEEDS, CHUNK)):
            met += chunk
    print(dict(met))
    assert met["seeds"] == SEEDS
    for what in ("died", "ended in order", "rebalances", "offsets committed"):
        assert met[what], f"no run met: {what}"


def test_the_same_seed_gives_the_same_history(tmp_path: Path) -> None:
    for seed in (3, 4, 5):
        assert simulate(seed, tmp_path / f"{seed}-a").history == simulate(seed, tmp_path / f"{seed}-b").history

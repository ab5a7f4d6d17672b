"""
Many seeds: whatever happened, each event is in once, or forgotten, each summary is fresh, and the serial replay agrees.

    BANYAN_SIMULATION_SEEDS=5000 BANYAN_SIMULATION_FIRST=1000 python -m pytest tests/simulation -s
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.simulation import Simulation, simulate, template

SEEDS = int(os.environ.get("BANYAN_SIMULATION_SEEDS", "200"))
FIRST = int(os.environ.get("BANYAN_SIMULATION_FIRST", "0"))
CHUNK = 25
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, CHUNK))
@pytest.mark.timeout(900)
def test_seeds(tmp_path: Path, first: int) -> None:
    empty = template(tmp_path)
    seen: Counter[str] = Counter()
    for seed in range(first, min(first + CHUNK, FIRST + SEEDS)):
        try:
            simulation = simulate(seed, tmp_path / str(seed), empty)
        except BaseException as error:
            error.add_note(f"replay it with: python -m tests.simulation.simulation {seed}")
            raise
        seen += _met(simulation)
        shutil.rmtree(tmp_path / str(seed))
    print(f"seeds {first} to {first + CHUNK - 1}: {dict(seen)}")
    for what in ("died", "again-delivered", "conflict", "forgotten", "taken out"):
        assert seen[what], f"no run met: {what}"


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1229, id="a child is made while its parent, which lost a leaf, is made anew of what the child does not say"),
    ],
)
def test_seeds_that_found_something(tmp_path: Path, seed: int) -> None:
    """Beyond those of every run."""
    simulate(seed, tmp_path / str(seed))


def _met(simulation: Simulation) -> Counter[str]:
    """What a run went through."""
    statuses = Counter(result.status.value for result in simulation.results)
    return Counter(
        {
            "operations": len(simulation.history),
            "died": sum(line.endswith(" died") for line in simulation.history),
            "again-delivered": statuses["duplicate"],
            "conflict": statuses["conflict"],
            "accepted": statuses["accepted"],
            "forgotten": statuses["forgotten"],
            "taken out": sum(" forgot " in line and not line.endswith(": 0 0 0") for line in simulation.history),
        }
    )


def test_the_same_seed_gives_the_same_history(tmp_path: Path) -> None:
    for seed in (3, 4, 5):
        assert simulate(seed, tmp_path / f"{seed}-a").history == simulate(seed, tmp_path / f"{seed}-b").history
    assert simulate(6, tmp_path / "6").digest != simulate(7, tmp_path / "7").digest


def test_also_in_another_process(tmp_path: Path) -> None:
    """Nothing hangs on the order of sets, which differs from process to process."""
    here = simulate(8, tmp_path / "here").digest
    for hashing in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-m", "tests.simulation.simulation", "8", "--digest"],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": hashing},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == here

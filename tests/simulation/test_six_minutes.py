"""Six minutes without Redis, without an embedder, without a model: nothing is lost, little is said, and then it goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from memory.errors import EmbedderError, StoreUnavailableError, SummarizerError, TransientError
from streams.retrying import LOG_EVERY
from tests.fakes.virtual_time import run_virtually
from tests.simulation.pipeline import NAMES, PipelineSimulation
from tests.simulation.simulation import Weather, _life

BEGINS, LASTS = 0.1, 360.0  # simulated seconds
CALM = Weather(dies=0, stops=0, waits=0, fails=0)
POINTS: dict[str, tuple[tuple[str, ...], TransientError]] = {
    "store": (("before read", "before write"), StoreUnavailableError("the store is away")),
    "embedder": (("embed",), EmbedderError("the embedder is away (503)")),
    "model": (("summarize",), SummarizerError("the model is away (503)")),
}


class Outage(PipelineSimulation):
    """Workers to whom nothing happens but that one thing is away for a while."""

    away = "store"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.weather = CALM
        self.asked = Counter[str]()
        """Calls during the outage, by worker."""
        self.in_by: dict[str, float] = {}
        """When each thing came to be: the last record in, the last summary fresh."""

    async def point(self, name: str) -> None:
        points, error = POINTS[self.away]
        life = _life.get()
        if life is not None and name in points and BEGINS < self._time() < BEGINS + LASTS:
            self.asked[life.name] += 1
            raise error
        await super().point(name)

    async def before_commit(self, place: tuple[str, int], before: int, after: int) -> None:
        await super().before_commit(place, before, after)
        self.in_by[place[0]] = self._time()


def outage(away: str, seed: int, folder: Path) -> Outage:
    async def story() -> Outage:
        simulation = Outage(seed, folder)
        simulation.away = away
        await simulation.run()
        return simulation

    folder.mkdir()
    return run_virtually(story())


@pytest.mark.parametrize("away", list(POINTS))
def test_six_minutes_without(tmp_path: Path, away: str) -> None:
    for seed in range(2):
        simulation = outage(away, seed, tmp_path / str(seed))
        assert simulation.asked, "the outage was met"
        # That everything is in, once, fresh and acknowledged was looked at by the run.
        in_by, fresh_by = simulation.in_by[NAMES.turns.name], simulation.in_by[NAMES.summaries.name]
        end = BEGINS + LASTS
        assert fresh_by > end
        assert (in_by < end) == (away == "model"), "only who needs what is away waits for it"
        # With pauses of at most a minute between attempts nothing comes back later than two after the end.
        assert fresh_by < end + 120
        workers = len(simulation.asked)
        said = Counter(line["event"] for line in simulation.lines)
        assert said["waiting"] <= workers * (LASTS / LOG_EVERY + 2) * 2, said
        assert not said["unexpected"]

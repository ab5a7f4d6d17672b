"""
The pipeline under fire: workers killed and stopped, Redis and the broker restarted, a model in a bad mood, while records come.

    BANYAN_CHAOS_EVENTS=100000 BANYAN_CHAOS_STORM_KILLS=100 python -m pytest tests/chaos/test_pipeline.py -s
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.storm import Plan, Storm
from tests.chaos.verdict import judge, report, settle
from tests.conftest import started

EVENTS = int(os.environ.get("BANYAN_CHAOS_EVENTS", "0"))
KILLS = int(os.environ.get("BANYAN_CHAOS_STORM_KILLS", "100"))
SEED = int(os.environ.get("BANYAN_CHAOS_SEED", "1"))

SHORT = Plan(seed=SEED)
LONG = replace(
    SHORT,
    events=EVENTS,
    kills=KILLS,
    stops=KILLS // 8,
    redis_restarts=KILLS // 16,
    broker_restarts=KILLS // 25,
    pause=(3.0, 9.0),
    session=6.0,
    lease=10.0,
    stopped=15.0,
    linger=5.0,
    settle=5_400.0,
)


@pytest.mark.slow
@pytest.mark.timeout(10_800 if EVENTS else 900)
async def test_every_event_once_and_nothing_left_over(tmp_path: Path) -> None:
    plan = LONG if EVENTS else SHORT
    print(plan)
    with started(Storm(plan, tmp_path)) as storm:
        await storm.rage()
        settled = await settle(storm)
        assert storm.end() == [0] * (plan.ingest + plan.summaries)
        print(json.dumps(report(storm, settled), indent=1))
        await judge(storm)
        assert storm.did["kill"] == plan.kills

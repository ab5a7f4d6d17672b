"""
kill -9, again and again, at random points; then every id is there once (P1), every summary is fresh, and the replay agrees (P2).

    BANYAN_CHAOS_KILLS=50 BANYAN_CHAOS_SEED=7 python -m pytest tests/chaos -s
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from memory.structures import registry
from tests.chaos.crew import ROOT, acknowledged, assert_nothing_lost, finish, ids, start
from tests.chaos.worker import TREE, Share, record

KILLS = int(os.environ.get("BANYAN_CHAOS_KILLS", "6"))
SEED = int(os.environ.get("BANYAN_CHAOS_SEED", "1"))


def killed(share: Share, after: float) -> bool:
    """Start a worker and kill it so many seconds after its first sign of life; whether it was still at work."""
    acknowledgements, done = (Path(share.folder, f"{name}-{share.first}") for name in ("acknowledged", "done"))
    done.unlink(missing_ok=True)
    with start(replace(share, stay=True)) as process:
        while not acknowledgements.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        time.sleep(after)
        ended = process.poll() is not None
        process.kill()
        assert not ended, process.communicate()
    return not done.exists()


@pytest.mark.parametrize("structure", registry.NAMES)
def test_a_process_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path, structure: str) -> None:
    wanted = KILLS if structure == registry.NAMES[0] else max(3, KILLS // 2)
    print(f"seed {SEED}, {wanted} kills")
    drawn = random.Random(SEED)
    share = Share(folder=str(tmp_path), records=60 * wanted, seed=SEED, batch=8, wait=True, structure=structure)
    at_work = 0
    for number in range(wanted):
        before = acknowledged(tmp_path)
        # Short lives also hit the opening, long ones the summaries. How far it came is the machine's affair.
        Path(share.folder, "acknowledged-0").unlink(missing_ok=True)
        kept = Path(share.folder, f"acknowledged-kept-{number}")
        kept.write_text("".join(f"{name}\n" for name in sorted(before)))
        at_work += killed(share, after=drawn.choice([0.0, 0.02, 0.1, 0.4, 1.0]) * drawn.random() + 0.01)
    print(
        f"{at_work} of {wanted} killed at work, {len(acknowledged(tmp_path))} of {share.records} acknowledged before the last start"
    )
    finish(start(share))
    print(asyncio.run(assert_nothing_lost(share, set(ids(share)))))


def test_two_processes_of_which_one_is_killed_again_and_again(tmp_path: Path) -> None:
    """The other goes on; what the killed one had in hand is done by who comes next."""
    share = Share(folder=str(tmp_path), records=80 * min(KILLS, 20), step=2, seed=SEED, batch=8)
    other = replace(share, first=1, wait=True)
    drawn = random.Random(SEED + 1)
    with start(other) as steady:
        for _ in range(min(KILLS, 20) // 2):
            killed(share, after=0.6 * drawn.random())
        assert finish(start(share))["accepted"] >= 0
        assert finish(steady)["fresh"]
    asyncio.run(assert_nothing_lost(share, {*ids(share), *ids(other)}))


def command(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "from streams.cli import main; main()", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BANYAN_STORE": f"sqlite:///{folder / 'memory'}", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("embedder", ["hashing", *(["local"] if "BANYAN_CHAOS_KILLS" in os.environ else [])])
def test_the_command_line_is_killed_and_run_again(tmp_path: Path, embedder: str) -> None:
    drawn = random.Random(SEED + 2)
    count = 40 * min(KILLS, 20)
    lines = [
        {"tree": TREE, "id": turn.id, "text": turn.text, "conversation": turn.conversation, "speaker": turn.speaker}
        for turn in (record(number, SEED) for number in range(count))
    ]
    file = tmp_path / "turns.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for _ in range(min(KILLS, 20) // 2):
        with command(tmp_path, "ingest", str(file), BANYAN_EMBEDDER=embedder) as process:
            time.sleep(0.5 + 2.0 * drawn.random())
            process.kill()
    with command(tmp_path, "ingest", str(file), "--json", BANYAN_EMBEDDER=embedder) as process:
        out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()
    tally = json.loads(out.splitlines()[-1])
    assert (tally["accepted"] + tally["duplicates"], tally["rejected"]) == (count, 0)
    with command(tmp_path, "check", TREE, "--json", BANYAN_EMBEDDER=embedder) as process:
        out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, out.decode() + errors.decode()
    with command(tmp_path, "stats", TREE, "--json", BANYAN_EMBEDDER=embedder) as process:
        stats = json.loads(process.communicate(timeout=240)[0].splitlines()[-1])
    assert (stats["leaves"], stats["pending"]) == (count, 0)

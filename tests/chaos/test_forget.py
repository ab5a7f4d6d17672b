"""
Forgetting is killed, again and again, and repeated until it is answered; then nothing of it is in any byte of the files (P6).

    BANYAN_CHAOS_KILLS=200 BANYAN_CHAOS_SEED=7 python -m pytest tests/chaos/test_forget.py -s
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.local import open_local
from memory.model import TreeId
from memory.results import EventStatus
from tests.chaos.crew import ROOT

KILLS = int(os.environ.get("BANYAN_CHAOS_KILLS", "6"))
SEED = int(os.environ.get("BANYAN_CHAOS_SEED", "1"))
LIVES = 3
"""Times at most that a forget is killed before it is let live."""
TREE = "chaos"
SECRET = "zanzibar"
COUNT = 220
PRIVATE = frozenset(range(3, COUNT, 3))
"""More than one commit forgets."""


def turn(number: int) -> dict[str, Any]:
    if number in PRIVATE:
        said = f"topic{number % 7} and we hid {SECRET}{number} behind the {SECRET} clock."
        about = {"conversation": "private", "speaker": f"Ana of {SECRET}", "metadata": {"where": f"{SECRET}{number}"}}
    else:
        said, about = f"topic{number % 7} subject{number % 11} and nothing but number{number}.", {"conversation": f"c{number % 5}"}
    return {"tree": TREE, "id": f"e{number}", "text": said, **about}


TURNS = [turn(number) for number in range(COUNT)]


async def fill(folder: Path) -> None:
    async with await open_local(folder, embedder=HashingEmbedder()) as memory:
        for start in range(0, COUNT, 40):  # summaries and the index are written several times
            await memory.ingest(TURNS[start : start + 40])
            await memory.fresh(TREE)
            await memory.search(TREE, SECRET)


def forget(folder: Path, moment: int = 0) -> subprocess.CompletedProcess[str]:
    """`banyan forget`, killed at a moment."""
    given = ["forget", TREE, "--conversation", "private", "--json"]
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos.forgetter", str(moment), str(folder.parent / "moments"), *given],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BANYAN_STORE": f"sqlite:///{folder}", "BANYAN_EMBEDDER": "hashing"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def found_in(folder: Path) -> dict[str, int]:
    """How often the word stands in each of a folder's files, whatever its case."""
    counts = {str(file): file.read_bytes().lower().count(SECRET.encode()) for file in folder.rglob("*") if file.is_file()}
    return {name: count for name, count in counts.items() if count}


async def assert_forgotten(folder: Path) -> None:
    """The others are there once, nothing is wrong with the tree or waits, and what was forgotten does not come back."""
    async with await open_local(folder, embedder=HashingEmbedder()) as memory:
        report, stats = await memory.check(TREE), await memory.stats(TREE)
        assert report.violations == ()
        items = [node.item async for node in memory.parts.store.all_nodes(TreeId(TREE)) if node.item is not None]
        left = {each["id"]: each["text"] for number, each in enumerate(TURNS) if number not in PRIVATE}
        assert {item.event_id: item.text for item in items} == left
        assert (len(items), stats.events, stats.pending) == (len(left), len(left), 0)
        again = await memory.ingest(TURNS)
        wanted = [EventStatus.FORGOTTEN if number in PRIVATE else EventStatus.DUPLICATE for number in range(COUNT)]
        assert [result.status for result in again] == wanted
        assert all(SECRET not in hit.text for hit in (await memory.search(TREE, f"{SECRET} clock", k=50)).hits)


def test_a_forget_that_is_killed_again_and_again_leaves_nothing_once_it_is_answered(tmp_path: Path) -> None:
    filled, folder = tmp_path / "filled", tmp_path / "memory"
    asyncio.run(fill(filled))
    assert found_in(filled), "the test looks where it would be"
    shutil.copytree(filled, folder)
    answer = forget(folder)
    assert answer.returncode == 0, answer.stderr
    moments = int((tmp_path / "moments").read_text())
    drawn, kills, left_words = random.Random(SEED), 0, 0
    print(f"seed {SEED}, {KILLS} kills, {moments} moments in one that lives")
    while kills < KILLS:
        shutil.rmtree(folder)
        shutil.copytree(filled, folder)
        at = [drawn.randint(1, moments) for _ in range(min(LIVES, KILLS - kills))]
        for moment in [*at, 0]:
            answer = forget(folder, moment)
            if answer.returncode == 0:
                break  # the second has less to do than the first
            assert answer.returncode == -signal.SIGKILL, (at, answer.returncode, answer.stderr)
            kills += 1
            left_words += bool(found_in(folder))
        assert answer.returncode == 0, answer.stderr
        assert found_in(folder) == {}, at
        assert json.loads(answer.stdout.splitlines()[-1])["fresh"], at
        asyncio.run(assert_forgotten(folder))
        assert found_in(folder) == {}, at
    print(f"{kills} killed, {left_words} of them with words left")
    assert left_words, "no kill came before the end"

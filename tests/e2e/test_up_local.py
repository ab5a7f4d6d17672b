"""`make up-local` as a stranger meets it: one command, example data becomes trees, a process is killed, Ctrl-C ends everything."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.local.servers import ServerMissingError, kafka_jars, redis_program
from tests.conftest import in_ci

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
LIMIT = 150.0  # seconds, on a machine that does much else
RECORDS = {"demo-chats": 308, "demo-news": 60}


class Up:
    """`python -m deploy.local`, and the commands that it says to type."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, output: Path, environment: dict[str, str]) -> None:
        self.process = process
        self.folder = folder
        self._output = output
        self._environment = environment

    @property
    def said(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + LIMIT
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{what}: {self.said[-3000:]}")
            time.sleep(0.3)

    def banyan(self, arguments: str) -> Any:
        """A command in another terminal; gives its last line of JSON."""
        command = f". {self.folder / 'env'} && banyan {arguments} --json"
        done = subprocess.run(["sh", "-c", command], cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        assert lines, done.stderr
        return json.loads(lines[-1])

    def children(self) -> dict[int, str]:
        """Processes that work in the folder: everything that was started has it on its command line or as its working folder."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
                place = str((path / "cwd").readlink())
            except OSError:
                continue
            if int(path.name) != self.process.pid and place.startswith(str(self.folder)):
                found[int(path.name)] = words
        return found

    def one(self, words: str) -> int:
        return next(number for number, command in self.children().items() if words in command)


@contextmanager
def up(folder: Path) -> Iterator[Up]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BANYAN_", "OPENAI_"))}
    environment |= {"BANYAN_EMBEDDER": "hashing", "BANYAN_KAFKA_PARTITIONS": "4"}
    output = folder / "output"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.local", "--folder", str(folder / "up")],
            cwd=ROOT,
            env=environment,
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
        )
    running = Up(process, folder / "up", output, environment)
    try:
        yield running
    finally:
        for number in running.children():
            os.kill(number, signal.SIGKILL)
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def servers() -> None:
    try:
        kafka_jars()
        redis_program()
    except ServerMissingError as error:
        if in_ci():
            pytest.fail(str(error))
        pytest.skip(str(error))
    if not Path("/proc").is_dir() or shutil.which("sh") is None:
        pytest.skip("looks for processes in /proc")


def test_one_command_brings_it_up_and_one_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        running.until(lambda: "Banyan runs" in running.said, "it comes up")
        for command in ("banyan produce", "banyan tree demo-chats", "banyan stats", "/metrics", "banyan dead-letters list"):
            assert command in running.said
        assert len(running.children()) == 7

        sent = running.banyan("produce examples/data/turns.jsonl examples/data/news.jsonl")
        assert sent["sent"] == sum(RECORDS.values())
        os.kill(running.one("worker ingest"), signal.SIGKILL)
        os.kill(running.one("redis"), signal.SIGKILL)
        running.until(lambda: running.said.count("started again in") >= 2, "what was killed is started again")

        def whole(tree: str) -> bool:
            found = running.banyan(f"stats {tree}")
            return bool(found.get("events") == RECORDS[tree] and found["pending"] == 0)

        for tree in RECORDS:
            running.until(partial(whole, tree), f"{tree} is whole and fresh")
            assert running.banyan(f"check {tree}")["clean"]
        assert running.banyan("repair --dry-run")["missing"] == 0
        (docs,) = re.findall(r"http://localhost:\d+/docs", running.said)
        with urllib.request.urlopen(docs, timeout=120) as answer:
            assert answer.status == 200

        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(180) == 0, running.said[-3000:]
        assert running.children() == {}
        assert "killed" not in running.said

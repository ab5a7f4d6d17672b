"""
`python -m tests`: every test, in a few runs side by side; what `make test` does. With arguments there is one run, with those.

Tests on real brokers and processes mostly wait, so that two runs share two processors well. What a run has printed comes when it
has ended, and every minute a line says which test each is at. Where all of it takes longer than CI allows, the runs are ended, and
say where they were.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import RUNNING

WAITING: Mapping[str, Sequence[str]] = {
    "kafka": ["tests/integration/kafka"],
    "chaos": ["tests/chaos"],
    "processes": [
        "tests/e2e/test_compose_commands.py",
        "tests/e2e/test_page.py",
        "tests/e2e/test_serve.py",
        "tests/e2e/test_service_story.py",
        "tests/e2e/test_up_local.py",
    ],
}
GROUPS: Mapping[str, Sequence[str]] = {
    "kafka": WAITING["kafka"],
    # In no other group: a test that is new is run wherever it is.
    "all others": [f"--ignore={path}" for paths in WAITING.values() for path in paths],
    "chaos": WAITING["chaos"],
    "processes": WAITING["processes"],
}
"""The longest first."""
LIMIT = 21 * 60.0  # seconds
"""CI ends everything after 25 minutes, without a word; some of them were spent before."""
GRACE = 20.0  # seconds
"""For a run that is ended to stop what it has started."""
POLL, TELL_EVERY = 0.2, 60.0  # seconds
PYTEST = (sys.executable, "-m", "pytest")


@dataclass
class Run:
    """One pytest; its output and the test that it is at are in files."""

    name: str
    folder: Path
    begun: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._output, self._at = (self.folder / f"{self.name}.{kind}" for kind in ("output", "at"))
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                # No cache: of several runs that write one, one may leave half of it.
                [*PYTEST, "-p", "no:cacheprovider", *GROUPS[self.name]],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, RUNNING: str(self._at)},
            )

    @property
    def at(self) -> str:
        """The test that runs."""
        return self._at.read_text(encoding="utf-8") if self._at.exists() else "collecting"

    def tell(self) -> None:
        """Print what it has printed."""
        say(f"=== {self.name}: ended with {self.process.returncode} after {time.monotonic() - self.begun:.0f} s")
        os.write(sys.stdout.fileno(), self._output.read_bytes())

    def end(self) -> None:
        """Have it show its stacks and stop what it has started; then end it, and what is left below it."""
        if self.process.poll() is not None:
            return
        below = _below(self.process.pid)
        for number in (signal.SIGUSR1, signal.SIGINT):
            self.process.send_signal(number)
            time.sleep(1)
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            for process in {*below, *_below(self.process.pid), self.process.pid}:
                os.kill(process, signal.SIGKILL)
            self.process.wait()


def _below(number: int) -> set[int]:
    """Processes that a process has started, and those that they have; none where the system does not tell."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(path.parent.name))
    found: set[int] = set()
    left = [number]
    while left:
        children = parents.get(left.pop(), [])
        found.update(children)
        left += children
    return found


def say(text: str) -> None:
    print(text, flush=True)


def every_test(folder: Path) -> int:
    """Run all groups; the exit code that says most."""
    lanes = max(2, min(len(GROUPS), os.cpu_count() or 1))
    waiting, running, codes = list(GROUPS), list[Run](), list[int]()
    begun = told = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < lanes:
                running.append(Run(waiting.pop(0), folder))
            for run in [run for run in running if run.process.poll() is not None]:
                running.remove(run)
                run.tell()
                codes.append(run.process.returncode)
            now = time.monotonic()
            if now - begun > LIMIT:
                say(f"=== After {LIMIT / 60:.0f} minutes not all tests have run. Ended: {where(running)}; not begun: {waiting}")
                return 1
            if now - told > TELL_EVERY:
                told = now
                say(f"=== {(now - begun) / 60:.0f} min: {where(running)}")
            time.sleep(POLL)
    finally:
        for run in running:
            run.end()
            run.tell()
    return max(codes, key=abs)


def where(runs: Sequence[Run]) -> str:
    """The test that each is at."""
    return "; ".join(f"{run.name} at {run.at}" for run in runs)


def main(arguments: list[str]) -> int:
    if arguments:
        return subprocess.run([*PYTEST, *arguments], check=False).returncode
    with tempfile.TemporaryDirectory(prefix="banyan-tests-") as folder:
        return every_test(Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

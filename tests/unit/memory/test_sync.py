"""The memory without `await`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import ClosedError
from memory.sync import LocalMemorySync, open_local_sync

RECORD = {"tree": "me", "id": "t1", "text": "I moved to Porto in May."}


def test_it_answers_without_a_loop_of_the_caller() -> None:
    with open_local_sync(embedder=HashingEmbedder()) as memory:
        memory.ingest([RECORD])
        assert memory.search("me", "Porto").hits[0].text == RECORD["text"]
        assert sum(1 for _ in memory.export("me")) > 1


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.ingest([RECORD]),
        lambda memory: memory.search("me", "Porto"),
        lambda memory: memory.trees(),
        lambda memory: next(memory.export("me")),
    ],
    ids=["ingest", "search", "trees", "export"],
)
@pytest.mark.filterwarnings("error")
def test_a_call_after_closing_says_so(call: Callable[[LocalMemorySync], object]) -> None:
    memory = open_local_sync(embedder=HashingEmbedder())
    memory.close()
    with pytest.raises(ClosedError, match="open it again"):
        call(memory)
    memory.close()


def test_a_memory_that_nobody_closed_ends_with_its_process_in_silence() -> None:
    script = """
from memory import open_local_sync
from memory.adapters.embedded.hashing import HashingEmbedder
memory = open_local_sync(PATH, embedder=HashingEmbedder())
memory.ingest([{"tree": "t", "id": "a", "text": "Ana moved to Porto."}])
"""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-c", script.replace("PATH", repr(folder))],
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")

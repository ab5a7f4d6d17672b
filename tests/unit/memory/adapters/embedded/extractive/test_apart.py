"""Summaries in another process: the same ones, whatever becomes of the process."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

from memory.adapters.embedded.extractive import ApartSummarizer, ExtractiveSummarizer
from memory.ports.summarizer import SummaryRequest

REQUESTS = [
    SummaryRequest(existing="", new=(f"Ana: I moved to Porto in {month}.", "Ben: By train?"), descendants=2, covered=0)
    for month in ("May", "June", "July", "August")
]
ORPHAN = """
import asyncio, multiprocessing
from memory.adapters.embedded.extractive import ApartSummarizer
from memory.ports.summarizer import SummaryRequest

async def main():
    summarizer = ApartSummarizer()
    await summarizer.summarize(SummaryRequest(existing="", new=("a", "b"), descendants=2, covered=0))
    print(multiprocessing.active_children()[0].pid, flush=True)
    await asyncio.sleep(1000)

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_summaries_are_those_that_would_be_made_here_even_when_the_process_is_killed() -> None:
    apart, here = ApartSummarizer(), ExtractiveSummarizer()
    processes = set()
    for request in REQUESTS:
        assert await apart.summarize(request) == await here.summarize(request)
        for process in multiprocessing.active_children():
            processes.add(process.pid)
            process.kill()
            process.join()
    assert len(processes) == len(REQUESTS) / 2, "after each one that is killed one summary is made here, the next in another"
    await apart.close()


async def test_many_at_once_and_one_that_is_given_up() -> None:
    apart, here = ApartSummarizer(), ExtractiveSummarizer()
    await apart.summarize(REQUESTS[0])
    given_up = asyncio.create_task(apart.summarize(REQUESTS[0]))
    await asyncio.sleep(0)
    given_up.cancel()
    made = await asyncio.gather(*(apart.summarize(request) for request in REQUESTS[1:] * 3))
    assert made == [await here.summarize(request) for request in REQUESTS[1:] * 3]
    await apart.close()
    assert multiprocessing.active_children() == []
    await apart.close()


def test_it_does_not_outlive_whoever_started_it(tmp_path: Path) -> None:
    program = tmp_path / "orphan.py"
    program.write_text(ORPHAN, encoding="utf-8")
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
        # Its end of the pipe closes when it has ended: nobody else holds it then.
        assert parent.stdout.read() == b""

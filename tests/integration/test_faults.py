"""What the machine does to a memory: full disks, folders that cannot be written, damaged files (design section 11)."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import StoreDamagedError, StoreUnavailableError
from memory.local import INDEX_FILE, LOCK_SUFFIX, STORE_FILE, LocalMemory, open_local
from memory.records import Turn
from memory.results import EventStatus
from memory.sync import open_local_sync

TREE = "tree"
REPOSITORY = Path(__file__).parents[2]


def records(start: int, stop: int) -> list[dict[str, object]]:
    return [
        {"tree": TREE, "id": f"e{number}", "text": f"topic{number % 5} words number{number}", "speaker": "Ana"}
        for number in range(start, stop)
    ]


async def opened(folder: Path, **options: object) -> LocalMemory:
    return await open_local(folder, embedder=HashingEmbedder(), **options)  # type: ignore[arg-type]


async def filled(folder: Path, count: int = 60) -> None:
    async with await opened(folder) as memory:
        await memory.ingest(records(0, count))
        assert await memory.fresh(TREE)
        assert (await memory.search(TREE, "number7")).hits


async def assert_whole(folder: Path, count: int) -> None:
    async with await opened(folder) as memory:
        assert (await memory.check(TREE)).violations == ()
        assert (await memory.stats(TREE)).events == count
        assert (await memory.search(TREE, f"number{count - 1}", k=3)).hits[0].event_id == f"e{count - 1}"


async def test_a_full_disk_stops_writing_with_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    """The limit on a file's size stands for the disk's; reading goes on, and writing too once there is room."""
    await filled(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with await opened(tmp_path) as memory:
        before = set(await stored(memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
        acknowledged: set[str] = set()

        async def feed() -> None:
            for start in range(60, 20_000, 32):
                acknowledged.update(result.id for result in await memory.ingest(records(start, start + 32)))

        try:
            with pytest.raises(StoreUnavailableError, match=r"store\.db"):
                await feed()
            assert (await memory.search(TREE, "number7", k=3)).hits
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, ignored)
        after = set(await stored(memory))
        assert before | acknowledged <= after
        assert (await memory.check(TREE)).violations == ()
        results = await memory.ingest(records(0, 200))
        assert {result.status for result in results} <= {EventStatus.ACCEPTED, EventStatus.DUPLICATE}
        assert await memory.fresh(TREE)
        assert {f"e{number}" for number in range(200)} <= set(await stored(memory))


async def stored(memory: LocalMemory) -> list[str]:
    return list(await memory._parts.store.events(TREE))  # type: ignore[arg-type]


READING = """
import asyncio, os, sys
import numpy.random, traceback  # loaded before the rights to read them are given up
from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import BanyanError
from memory.local import open_local

async def main():
    if os.geteuid() == 0:
        os.seteuid(65534)  # permissions do not hold for root
    async with await open_local(sys.argv[1], embedder=HashingEmbedder(), read_only=sys.argv[2] == "read_only") as memory:
        print("found", (await memory.search("tree", "number7", k=1)).hits[0].event_id)
        try:
            await memory.ingest([{"tree": "tree", "id": "new", "text": "words"}])
        except BanyanError as error:
            print(type(error).__name__)

asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["read_only", "writing"])
def test_a_folder_that_cannot_be_written_can_be_read(mode: str) -> None:
    # Not pytest's own folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        asyncio.run(filled(folder))
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READING, str(folder), mode],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["found", "e7", "StoreUnavailableError"]


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _scribbled(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:8192] + b"\xa5" * (middle - 8192) + content[middle:]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": _cut,
    "scribbled": _scribbled,
    "another file": lambda _: b"PK\x03\x04 this is no database " * 500,
    "emptied": lambda _: b"",
}


@pytest.mark.parametrize("damage", ["cut", "scribbled", "another file"])
async def test_a_damaged_store_is_said_to_be_damaged_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    await filled(tmp_path, 300)
    file = tmp_path / STORE_FILE
    damaged = DAMAGES[damage](file.read_bytes())
    file.write_bytes(damaged)

    async def use() -> None:
        async with await opened(tmp_path, summaries=False) as memory:
            await memory.check(TREE)

    with pytest.raises(StoreDamagedError, match=r"store\.db"):
        await use()
    assert file.read_bytes() == damaged


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_index_is_made_anew(tmp_path: Path, damage: str) -> None:
    await filled(tmp_path)
    file = tmp_path / INDEX_FILE
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    await assert_whole(tmp_path, 60)


async def test_missing_parts_are_made_anew(tmp_path: Path) -> None:
    await filled(tmp_path)
    (tmp_path / INDEX_FILE).unlink()
    (tmp_path / STORE_FILE).with_suffix(LOCK_SUFFIX).unlink()
    await assert_whole(tmp_path, 60)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files where Linux lists them")
def test_opening_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / STORE_FILE).write_bytes(b"no database at all, but long enough to be read as one" * 100)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(StoreDamagedError):
            asyncio.run(opened(tmp_path))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


async def test_closing_in_the_middle_of_everything(tmp_path: Path) -> None:
    memory = await opened(tmp_path)
    feeding = asyncio.create_task(memory.ingest(records(0, 400)))
    await asyncio.sleep(0.3)
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    await memory.close()
    await memory.close()
    async with await opened(tmp_path) as again:
        await again.ingest(records(0, 400))
        assert await again.fresh(TREE)
        assert (await again.check(TREE)).violations == ()
        assert (await again.stats(TREE)).events == 400


async def test_the_synchronous_form_works_inside_a_running_loop(tmp_path: Path) -> None:
    """As in a notebook."""
    with open_local_sync(tmp_path, embedder=HashingEmbedder()) as memory:
        assert [result.status for result in memory.ingest(records(0, 30))] == [EventStatus.ACCEPTED] * 30
        assert memory.fresh(TREE)
        assert memory.search(TREE, "number7", k=1).hits[0].event_id == "e7"
        assert memory.context(TREE, "topic1", tokens=100).hits
        lines = list(memory.export(TREE))
        assert memory.import_(lines, tree="copy").seq == memory.stats(TREE).seq
        assert memory.check("copy").clean
        assert [info.id for info in memory.trees()] == ["copy", TREE]
    memory.close()


async def test_records_that_were_made_and_not_parsed_are_checked_too(tmp_path: Path) -> None:
    async with await opened(tmp_path) as memory:
        made = [
            Turn(tree="a/b", id="1", text="words"),
            Turn(tree=TREE, id="", text="words"),
            Turn(tree=TREE, id="3", text=" "),
            Turn(tree=TREE, id="4", text="half a pair \ud83d"),
            Turn(tree=TREE, id="5", text="fine"),
        ]
        statuses = [result.status for result in await memory.ingest(made)]
        assert statuses == [EventStatus.REJECTED] * 4 + [EventStatus.ACCEPTED]

"""`banyan check` on stores that somebody has written to by hand: what is broken is named, and what to do."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from memory.adapters.embedded.store.codec import encode_link
from memory.changes import Link
from memory.model import NodeId
from memory.tree.check import INVARIANTS
from streams.cli.app import run
from tests.e2e.commands import Banyan, turn

LEAF = "(SELECT min(key) FROM node WHERE kind = 2)"
SUMMARY = "(SELECT min(key) FROM node WHERE kind = 1)"
NAMES = f"x'{msgspec.msgpack.encode({'a': 'b'}).hex()}'"
EDGE = f"x'{encode_link(Link(node=NodeId('nobody'), others=(NodeId('nowhere'),))).hex()}'"

BROKEN = {
    "root": "UPDATE node SET depth = 3 WHERE kind = 0",
    "single-parent": f"UPDATE node SET parent = (SELECT max(key) FROM node WHERE kind = 2) WHERE key = {LEAF}",
    "no-cycle": "UPDATE node SET parent = (SELECT below.key FROM node AS below WHERE below.parent = node.key AND below.kind = 1) "
    "WHERE key = (SELECT above.key FROM node AS above JOIN node AS below ON below.parent = above.key "
    "WHERE above.kind = 1 AND below.kind = 1 LIMIT 1)",
    "depth": f"UPDATE node SET depth = depth + 2 WHERE key = {LEAF}",
    "descendants": f"UPDATE node SET descendants = descendants + 3 WHERE key = {SUMMARY}",
    "not-empty": "UPDATE node SET parent = (SELECT key FROM node WHERE kind = 0) WHERE kind = 2",
    "leaf-is-item": f"UPDATE content SET item = NULL WHERE key = {LEAF}",
    "event-once": "DELETE FROM event WHERE id = 'id-5'",
    "coverage": f"UPDATE node SET pending = pending + 1 WHERE key = {SUMMARY}",
    "attributes": f"INSERT INTO attribute VALUES ({LEAF}, {NAMES})",
    "links": f"INSERT INTO link VALUES ((SELECT number FROM tree), 1, {EDGE})",
    "vector": f"UPDATE vector SET value = zeroblob(length(value)) WHERE key = {LEAF}",
    "serial-replay": f"UPDATE vector SET value = (SELECT value FROM vector WHERE key = {LEAF} + 1) WHERE key = {LEAF}",
    "log-shape": "DELETE FROM log WHERE key = (SELECT min(key) FROM log)",
}
UNREADABLE = {
    "a log entry": "UPDATE log SET entry = x'ff' WHERE key = (SELECT max(key) FROM log)",
    "an item": f"UPDATE content SET item = x'ff' WHERE key = {LEAF}",
    "a receipt": "UPDATE event SET leaves = x'ff' WHERE id = 'id-5'",
    "a vector": f"UPDATE vector SET value = x'00' WHERE key = {LEAF}",
    "a kind": f"UPDATE node SET kind = 7 WHERE key = {LEAF}",
}


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grown")
    about = ("the cost of the harbour tunnel", "a cello lesson and a play", "her knee and the marathon")
    lines = [json.dumps(turn(number, f"{about[number % 3]}, again {number}")) for number in range(30)]
    (folder / "turns.jsonl").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BANYAN_EMBEDDER", "hashing")
        assert run(["ingest", str(folder / "turns.jsonl"), "--store", f"sqlite:///{folder / 'memory'}"]) == 0
    return folder / "memory"


def _change(banyan: Banyan, grown: Path, statement: str) -> None:
    shutil.copytree(grown, banyan.folder / "memory")
    with closing(sqlite3.connect(banyan.folder / "memory" / "store.db")) as file:
        assert file.execute(statement).rowcount > 0
        file.commit()


def test_every_invariant_is_broken_here() -> None:
    assert set(BROKEN) == set(INVARIANTS)


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named_with_its_tree_and_what_to_do(banyan: Banyan, grown: Path, name: str) -> None:
    _change(banyan, grown, BROKEN[name])
    ran = banyan("check", "t")
    found, _, advice = ran.out.partition("  What to do: ")
    head, *violations = found.splitlines()
    assert (ran.code, ran.err) == (1, "")
    assert head.startswith("✘ t has ")
    # A violation a line, however long: other programs read them.
    assert name in [line.split()[0] for line in violations]
    assert all(line.startswith("  ") for line in violations)
    assert "banyan import" in advice


def test_a_commit_that_the_log_lacks_is_told_by_its_number(banyan: Banyan, grown: Path) -> None:
    _change(banyan, grown, "DELETE FROM log WHERE key = (SELECT min(key) FROM log)")
    [found] = banyan("check", "t", "--json").value["violations"]
    assert (found["invariant"], "lacks commit 1" in found["detail"]) == ("log-shape", True)


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_row_that_cannot_be_read_is_damage_and_no_bug(banyan: Banyan, grown: Path, what: str) -> None:
    _change(banyan, grown, UNREADABLE[what])
    ran = banyan("check", "t")
    [line] = ran.err.splitlines()
    assert (ran.code, ran.out) == (4, "")
    assert "cannot be read; restore" in line
    assert "bug" not in line

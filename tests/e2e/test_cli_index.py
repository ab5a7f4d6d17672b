"""`banyan index`: the index beside a file, and a replica's."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from tests.e2e.commands import Banyan


def put_in(banyan: Banyan, folder: Path, tree: str) -> None:
    lines = (f'{{"id":"e{number}","text":"the oak is number {number} of {number % 5}"}}' for number in range(30))
    (folder / "turns.jsonl").write_text("\n".join(lines))
    assert banyan("ingest", "turns.jsonl", "--tree", tree, "--json").code == 0


def test_a_spoilt_index_is_told_made_anew_and_then_level(banyan: Banyan, tmp_path: Path) -> None:
    put_in(banyan, tmp_path, "oaks")
    before = banyan("index", "verify", "oaks", "--json").value["trees"][0]
    assert (before["level"], before["missing"], before["differing"], before["superfluous"]) == (True, 0, 0, 0)
    assert before["nodes"] == banyan("stats", "oaks", "--json").value["nodes"]
    file = next(tmp_path.rglob("*index*.db"))
    with sqlite3.connect(file) as connection:
        # What the first update brought is lost; the file still says that it has it.
        connection.execute("DELETE FROM segments WHERE id = (SELECT min(id) FROM segments)")
    connection.close()
    told = banyan("index", "verify", "oaks", "--json")
    assert told.code == 1
    assert told.value["trees"][0]["missing"] > 0
    mended = banyan("index", "verify", "--repair", "--json")
    assert mended.code == 0
    assert mended.value["trees"][0]["repaired"] is True
    assert banyan("index", "verify", "--json").value["trees"][0]["level"] is True
    anew = banyan("index", "rebuild", "oaks", "--json").value["trees"]
    assert anew == [{"tree": "oaks", "seq": before["seq"]}]
    assert banyan("search", "oaks", "number 7", "-k", "1", "--json").value["hits"][0]["event_id"] == "e7"


def test_an_unknown_tree_and_settings_that_cannot_be(banyan: Banyan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(banyan, tmp_path, "oaks")
    assert banyan("index", "verify", "elms").code == 1
    monkeypatch.setenv("BANYAN_INDEX", "redisearch")
    ran = banyan("search", "oaks", "number 7")
    assert ran.code == 2
    assert "index lies beside it" in ran.err


def test_a_replica_is_kept_in_its_file_and_a_server_without_the_module_is_told(
    banyan: Banyan, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANYAN_STORE", redis_url)
    tree = f"index-{os.urandom(4).hex()}"
    put_in(banyan, tmp_path, tree)
    monkeypatch.setenv("BANYAN_INDEX", "replica")
    passing = banyan("index", "verify", tree)
    assert passing.code == 0
    assert "BANYAN_INDEX_FILE" in passing.err
    monkeypatch.setenv("BANYAN_INDEX_FILE", str(tmp_path / "replica" / "index.db"))
    assert banyan("search", tree, "number 7", "-k", "1", "--json").value["hits"][0]["event_id"] == "e7"
    assert (tmp_path / "replica" / "index.db").exists()
    assert banyan("index", "rebuild", tree, "--json").value["trees"][0]["tree"] == tree
    level = banyan("index", "verify", tree)
    assert level.code == 0
    assert "BANYAN_INDEX_FILE" not in level.err
    monkeypatch.setenv("BANYAN_INDEX", "redisearch")
    refused = banyan("search", tree, "number 7")
    assert refused.code == 2
    assert "no search module" in refused.err
    assert "BANYAN_INDEX=replica" in refused.err

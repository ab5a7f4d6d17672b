"""The command line over a store in Redis: the same answers as over a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.commands import Banyan


@pytest.fixture
def over_redis(banyan: Banyan, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Banyan:
    """The command line over Redis."""
    monkeypatch.setenv("BANYAN_STORE", redis_url)
    return banyan


@pytest.fixture
def tree() -> str:
    """A name of the test's own: the server is shared."""
    return f"cli-{os.urandom(4).hex()}"


def test_what_was_put_in_is_looked_at_found_and_carried_away(over_redis: Banyan, tree: str, tmp_path: Path) -> None:
    banyan = over_redis
    words = ["oak", "elm", "ash"] * 7
    lines = (f'{{"id":"e{number}","text":"the {word} is number {number}"}}' for number, word in enumerate(words))
    (tmp_path / "turns.jsonl").write_text("\n".join(lines))
    assert banyan("ingest", "turns.jsonl", "--tree", tree, "--json").value["accepted"] == 21
    stats = banyan("stats", tree, "--json").value
    assert (stats["leaves"], stats["pending"]) == (21, 0)
    assert banyan("check", tree, "--json").value["violations"] == []
    assert len(banyan("tree", tree, "--json").value["children"]) > 0
    assert tree in banyan("tree").out
    assert banyan("search", tree, "number 7", "-k", "1", "--json").value["hits"][0]["event_id"] == "e7"
    assert banyan("export", tree, "-o", "tree.jsonl", "--json").code == 0
    copy = banyan("import", "tree.jsonl", "--tree", f"{tree}-copy", "--store", "sqlite:///copy", "--json")
    assert copy.value["seq"] == stats["seq"]


def test_a_tree_that_is_not_there_is_told_without_the_password(over_redis: Banyan, redis_url: str) -> None:
    address = redis_url.replace("redis://", "redis://default:@")
    ran = over_redis("stats", "nobody", "--store", address)
    assert ran.code == 1
    assert "there is no tree 'nobody'" in ran.err
    assert "default:" not in ran.err


def test_a_server_that_is_not_there_is_named(over_redis: Banyan) -> None:
    ran = over_redis("stats", "nobody", "--store", "redis://:secret@127.0.0.1:1/0")
    assert ran.code == 4
    assert "Redis cannot be reached" in ran.err
    assert "secret" not in ran.err

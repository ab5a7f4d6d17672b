"""The file of keys: what is in it, and what happens to one that is damaged."""

from __future__ import annotations

import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.errors import SettingError
from streams.query import keys
from streams.query.keys import KeyFile, KeyRing, Right

NOW = datetime(2026, 5, 8, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "folder" / "keys.json")


def test_the_file_lets_nobody_in_by_itself(file: KeyFile) -> None:
    key, token = file.create("app", rights=[Right.READ], prefixes=["a-"], now=NOW)
    assert token not in file.path.read_text()
    assert token.rsplit("_", 1)[-1] not in file.path.read_text()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.read() == [key]
    assert KeyRing(file).find(token, NOW) == key


@pytest.mark.parametrize("change", [str.upper, lambda token: token[:-1], lambda token: token + "A", lambda _: "é" * 9])
def test_a_key_is_its_every_character(file: KeyFile, change: Callable[[str], str]) -> None:
    _, token = file.create("app", rights=[Right.READ], prefixes=[""], now=NOW)
    assert KeyRing(file).find(change(token), NOW) is None


def test_keys_made_at_once_are_all_there(file: KeyFile) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: file.create(f"k{number}", rights=[Right.READ], prefixes=[""], now=NOW)[0], range(24)))
    assert sorted(key.id for key in file.read()) == sorted(key.id for key in made)


def test_a_damaged_file_is_said_and_leaves_the_keys_that_are_known(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "LOOK_EVERY", 0.0)
    _, token = file.create("app", rights=[Right.READ], prefixes=[""], now=NOW)
    ring = KeyRing(file)
    assert ring.find(token, NOW) is not None
    for content in ("{", "[]", '{"keys":[{}]}', '{"keys":4}'):
        file.path.write_text(content)
        with pytest.raises(SettingError, match="no file of keys"):
            file.read()
        assert ring.find(token, NOW) is not None
        assert ring.problem is not None
    file.path.unlink()
    assert ring.find(token, NOW) is None


@pytest.mark.parametrize(
    ("name", "prefix"), [("", ""), ("x" * 101, ""), ("a\nb", ""), ("a", "b/c"), ("a", "x" * 129), ("a", "b\n")]
)
def test_names_and_prefixes_that_cannot_be(file: KeyFile, name: str, prefix: str) -> None:
    with pytest.raises(SettingError):
        file.create(name, rights=[Right.READ], prefixes=[prefix], now=NOW)
    assert not file.path.exists()

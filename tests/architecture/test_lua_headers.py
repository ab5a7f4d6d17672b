"""Every Lua script says what it takes, gives and costs, and says the truth as far as a test can see."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memory.adapters.redis.scripts import script

SCRIPTS = Path("memory/adapters/redis/scripts")
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.lua") if not path.stem.startswith("lib_"))
LIBRARIES = sorted(path.stem for path in SCRIPTS.glob("lib_*.lua"))
WRITES = {"HSET", "HDEL", "HINCRBY", "SET", "DEL", "ZADD", "ZREM", "RPUSH", "LSET", "LTRIM", "XADD", "PEXPIRE"}
UNBOUNDED = {"KEYS", "SCAN", "HGETALL", "SMEMBERS", "FLUSHALL", "FLUSHDB", "SORT", "HKEYS", "HVALS"}
BOUNDED_BY_DEPTH = {("stats", "HGETALL")}
"""The counters of a tree: as many as it has depths."""
LINES_MAX = 300


def source(name: str) -> str:
    return (SCRIPTS / f"{name}.lua").read_text("utf-8")


def header(name: str) -> str:
    lines = source(name).splitlines()
    end = next(number for number, line in enumerate(lines) if number and not line.startswith("--"))
    return "\n".join(lines[1:end])


def commands(text: str) -> set[str]:
    return set(re.findall(r"redis\.call\('([A-Z]+)'", text)) | set(re.findall(r"many\('([A-Z]+)'", text))


def body(name: str) -> str:
    """The script without comments, what it includes left out."""
    return re.sub(r"--.*", "", source(name))


def test_there_are_scripts() -> None:
    assert {"apply", "lease_acquire", "lease_release", "log", "page"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_header_says_keys_arguments_reply_and_cost(name: str) -> None:
    found = header(name)
    for word in ("KEYS", "REPLY", "COST"):
        assert re.search(rf"^-- {word} +\S", found, re.MULTILINE), word
    assert re.match(r"-- [A-Z].*\.", found), "it begins with what the script does"


@pytest.mark.parametrize("name", NAMES)
def test_every_key_and_argument_that_is_used_is_in_the_header(name: str) -> None:
    found, text = header(name), body(name)
    for kind in ("KEYS", "ARGV"):
        used = {int(number) for number in re.findall(rf"{kind}\[(\d+)\]", text)}
        block = re.search(rf"^-- {kind} +(.*?)(?=^-- [A-Z]+ |\Z)", found, re.MULTILINE | re.DOTALL)
        named = [int(number) for number in re.findall(r"(?:^|\s)(\d+) ", block[1])] if block else []
        if block and "…" in block[1]:
            named = list(range(1, max(named) + 1))
        assert used <= set(named), kind


@pytest.mark.parametrize("name", NAMES)
def test_a_script_that_writes_nothing_says_so_to_redis(name: str) -> None:
    first = source(name).splitlines()[0]
    writes = commands(script(name).text if "lease" in name else body(name)) & WRITES
    assert first == ("#!lua" if writes else "#!lua flags=no-writes")


@pytest.mark.parametrize("name", [*NAMES, *LIBRARIES])
def test_no_script_goes_through_what_has_no_bound(name: str) -> None:
    assert {(name, found) for found in commands(source(name)) & UNBOUNDED} <= BOUNDED_BY_DEPTH


@pytest.mark.parametrize("name", NAMES)
def test_what_is_included_is_put_in_front_and_the_first_line_stays_first(name: str) -> None:
    made = script(name)
    assert made.text.startswith("#!lua")
    assert made.text.count("#!lua") == 1
    for library in re.findall(r"^-- include: (\w+)$", source(name), re.MULTILINE):
        assert library in LIBRARIES
        assert source(library) in made.text
    assert len(made.sha) == 40


@pytest.mark.parametrize("name", [*NAMES, *LIBRARIES])
def test_scripts_are_short_and_narrow(name: str) -> None:
    lines = source(name).splitlines()
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= 132


@pytest.mark.parametrize("name", [*NAMES, *LIBRARIES])
def test_every_script_is_asked_for_by_name_somewhere(name: str) -> None:
    sources = [path.read_text("utf-8") for path in SCRIPTS.parent.rglob("*.py")] + [source(other) for other in NAMES]
    assert any(f'"{name}"' in text or f"include: {name}\n" in text for text in sources)


def test_the_row_has_one_layout_on_both_sides() -> None:
    from memory.adapters.redis.codec import ROW  # noqa: PLC0415  # beside what it is compared with

    lua = re.search(r"ROW = '(.*)'", source("lib_rows"))
    size = re.search(r"ROW_SIZE = (\d+)", source("lib_rows"))
    assert lua is not None
    assert size is not None
    assert lua[1].replace("I4", "I") == ROW.format
    assert int(size[1]) == ROW.size

"""Every structure from the command line: put in, look at, ask in its own way and in one that does not work there, check."""

from __future__ import annotations

import asyncio

import pytest

from memory.results import EventStatus
from memory.retrieval.catalogue import STRATEGIES, strategies_for, works_on
from memory.structures import registry
from streams.bootstrap import open_memory
from streams.settings import load
from tests.e2e.commands import Banyan, turn

SUBJECTS = ("the harbour tunnel", "a winter garden of roses", "violin lessons", "the price of bread")
EXPLAINED = {
    "agent": "layer 0, node 0 → ",
    "descent": "similarities computed; a flat search computes 90",
    "router": "weights: session ",
}
"""What the strategies of a single structure say of how they went about it."""


@pytest.mark.parametrize("structure", registry.NAMES)
def test_it_is_grown_asked_and_checked(banyan: Banyan, structure: str) -> None:
    turns = [
        turn(number, f"{SUBJECTS[number % 4]}, part {number}", conversation=f"c{number // 9}", at=f"2026-05-{number % 28 + 1:02}")
        for number in range(90)
    ]
    file = banyan.write("chat.jsonl", turns)
    put = banyan("ingest", file, "--structure", structure, "--json").value
    assert (put["accepted"], put["duplicates"]) == (90, 0)
    assert banyan("ingest", file, "--json").value["duplicates"] == 90, "the tree remembers what it is"
    stats = banyan("stats", "t", "--json").value
    assert (stats["structure"], stats["leaves"], stats["pending"]) == (structure, 90, 0)
    for strategy in STRATEGIES:
        asked = banyan("search", "t", "violin lessons, part 14", "--strategy", strategy, "--explain", "--json")
        if works_on(strategy, structure):
            assert asked.value["hits"], strategy
            assert strategy not in EXPLAINED or any(EXPLAINED[strategy] in line for line in asked.value["trace"])
        else:
            assert (asked.code, f"{strategy!r} does not work on a {structure} tree" in asked.err) == (2, True)
            named = asked.err.partition("; there ")[2]
            assert {each for each in STRATEGIES if each in named} == set(strategies_for(structure))
    checked = banyan("check", "t", "--json")
    assert (checked.code, checked.value["replayed"], checked.value["violations"]) == (0, 90, [])
    drawn = banyan("tree", "t", "--depth", "2")
    assert (drawn.code, bool(drawn.out.strip())) == (0, True)


@pytest.mark.parametrize("told", ["option", "variable"])
def test_a_tree_is_not_written_to_by_who_is_told_of_another_structure(
    banyan: Banyan, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    assert banyan("ingest", banyan.write("first.jsonl", [turn(1)]), "--structure", "hat").code == 0
    if told == "variable":
        monkeypatch.setenv("BANYAN_STRUCTURE", "hmem")
    second = banyan("ingest", banyan.write("second.jsonl", [turn(2)]), *(("--structure", "hmem") if told == "option" else ()))
    assert (second.code, "is a hat tree" in second.err, "--structure hat" in second.err) == (2, True, True)
    assert banyan("stats", "t", "--json").value["leaves"] == 1


def test_a_service_writes_to_every_tree_as_it_was_made(banyan: Banyan) -> None:
    assert banyan("ingest", banyan.write("first.jsonl", [turn(1)])).code == 0

    async def serve(structure: str) -> list[str]:
        given = {"BANYAN_EMBEDDER": "hashing", "BANYAN_STORE": "sqlite:///memory", "BANYAN_STRUCTURE": structure}
        async with await open_memory(load(given).settings) as memory:
            results = await memory.ingest([turn(2, tree=structure), turn(10 + registry.NAMES.index(structure), "more")])
            assert {result.status for result in results} == {EventStatus.ACCEPTED}
            return [(await memory.stats(tree)).structure for tree in (structure, "t")]

    for structure in registry.NAMES:
        assert asyncio.run(serve(structure)) == [structure, "memtree"]
    checked = banyan("check", "t", "--json")
    assert (checked.code, checked.value["replayed"]) == (0, 1 + len(registry.NAMES))

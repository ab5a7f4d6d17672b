"""What a change set asks of the script."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from memory.adapters.redis.folding import fold
from memory.adapters.redis.keys import TreeKeys
from memory.changes import ChangeSet
from memory.model import ROOT, NodeId
from tests.fakes.change_sets import TREE, change_set, expand, expect, grow, insert, leaf, move, rewrite, summary

KEYS = TreeKeys.of("p", TREE)


def asked(changes: ChangeSet) -> tuple[dict[str, Any], list[str], list[str]]:
    """The request, the names and the keys of a set."""
    folded = fold(changes, KEYS)
    # As Lua reads it: the vectors are strings that are not text.
    request = msgspec.msgpack.decode(folded.request.replace(b"\xdb", b"\xc6"))
    return request, msgspec.msgpack.decode(folded.names), folded.keys


def places(names: list[str], *wanted: str) -> list[int]:
    return [names.index(name) + 1 for name in wanted]


def test_a_node_is_looked_at_once_however_many_steps_name_it() -> None:
    steps = [step for number in range(50) for step in (leaf(f"n{number}", "s", 2), grow(f"n{number}", "s", "t"))]
    request, names, keys = asked(change_set(*steps))
    assert sorted(names) == sorted({"s", "t", ROOT, *(f"n{number}" for number in range(50))})
    s, t, root = places(names, "s", "t", ROOT)
    assert request["changed"] == [[s, 50, 0, 50, 0, 0, False], [t, 0, 0, 50, 0, 0, False], [root, 0, 0, 50, 0, 0, False]]
    assert [row[0] for row in request["grown"]] == [s, t]
    assert keys == [KEYS.children(NodeId("s")), KEYS.contributions(NodeId("s")), KEYS.contributions(NodeId("t"))]


def test_the_leaves_made_come_first_among_the_names() -> None:
    request, names, _ = asked(expand("a", "b", "s", "p"))
    assert names[: request["leaves"]] == ["b"]


def test_what_is_there_and_what_is_new() -> None:
    request, names, _ = asked(expand("a", "b", "s", "p"))
    a, b, s, p, root = places(names, "a", "b", "s", "p", ROOT)
    assert set(request["present"]) == {a, p, root}
    assert [row[0] for row in request["new"]] == [s, b], "in the order of their steps"
    assert request["parents"] == [a, p]
    assert request["summaries"] == [p]
    assert request["guarded"] == [p], "a new node is nobody's yet"
    assert request["contradictions"] == []


def test_rewrites_guard_nothing() -> None:
    request, _, _ = asked(change_set(rewrite("s", "p")))
    assert request["guarded"] == []


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        (change_set(leaf("z"), leaf("z")), "z"),
        (change_set(grow("z"), leaf("z")), "z"),
        (change_set(leaf("z"), move("z", "p", ROOT, 1)), "z"),
        (change_set(move("a", "p", "q", 2), move("a", "p", "r", 2)), "a"),
        (change_set(move("s", "p", "q", 2), rewrite("s", "p")), "s"),
    ],
)
def test_what_cannot_be_is_told_whatever_the_store_has(changes: ChangeSet, culprit: str) -> None:
    request, names, _ = asked(changes)
    assert request["contradictions"] == places(names, culprit)


def test_later_rewrites_trim_what_earlier_steps_add() -> None:
    steps = (leaf("a", "s", 2), grow("a", "s"), rewrite("s", through=7), leaf("b", "s", 2), grow("b", "s"))
    request, names, _ = asked(change_set(*steps))
    (grown,) = request["grown"]
    assert grown[0] == places(names, "s")[0]
    assert grown[2:] == [7, [1, 7, 2, 0]]


def test_a_mark_that_lua_has_no_number_for_is_the_largest_it_has() -> None:
    request, _, _ = asked(change_set(rewrite("s", through=1 << 60)))
    assert request["grown"][0][2] == (1 << 53) - 1


def test_a_node_that_is_made_and_moved_at_once_is_written_where_it_ends() -> None:
    request, names, keys = asked(change_set(summary("s"), leaf("a"), move("a", ROOT, "s", 2)))
    a, s, root = places(names, "a", "s", ROOT)
    assert request["leaving"] == []
    assert {keys[key - 1]: members for key, members in request["coming"]} == {
        KEYS.children(ROOT): [s],
        KEYS.children(NodeId("s")): [a],
    }
    assert [row[8] for row in request["new"]] == [root, s]
    assert dict(zip(request["counts"][::2], request["counts"][1::2], strict=True)) == {
        "s1": 1,
        "l2": 1,
        "leaves": 1,
        "summaries": 1,
    }


@pytest.mark.parametrize(
    "broken",
    [
        change_set(leaf("a", depth=0)),
        change_set(leaf("a", depth=1 << 16)),
        change_set(move("a", ROOT, "s", 0)),
        change_set(leaf("a"), rewrite("a")),
        change_set(rewrite(ROOT)),
        change_set(leaf("a"), grow("a", "s", "s")),
    ],
)
def test_what_contradicts_the_contract_is_refused(broken: ChangeSet) -> None:
    with pytest.raises(ValueError, match=r"a|root"):
        fold(broken, KEYS)


def test_expectations_keep_their_order_and_none_is_no_number() -> None:
    request, names, _ = asked(insert("z", expects=[expect("p", version=0), expect(ROOT, routing=3)]))
    p, root = places(names, "p", ROOT)
    assert request["expects"] == [p, 0, False, root, False, 3]

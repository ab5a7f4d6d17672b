"""One text on one path is answered once."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.model import ROOT, EventId, Item, Mark, Node, NodeId, NodeKind
from memory.retrieval.repeats import without_repeats
from memory.retrieval.strategy import Ranked

Nodes = dict[NodeId, Node]
MAY = datetime(2026, 5, 8, tzinfo=UTC)
HOME = Item(event_id=EventId("e"), text="I live in Porto.", speaker="Ana", at=MAY)


def made(*given: tuple[str, str, str | Item]) -> Nodes:
    """Nodes by name, parent ("" for the root) and text, or item."""
    nodes = {ROOT: Node(id=ROOT, parent=None, kind=NodeKind.ROOT, depth=0, mark=Mark(0))}
    for name, parent, says in given:
        item, text = (None, says) if isinstance(says, str) else (says, says.text)
        above = NodeId(parent) if parent else ROOT
        nodes[NodeId(name)] = Node(
            id=NodeId(name),
            parent=above,
            kind=NodeKind.SUMMARY if item is None else NodeKind.LEAF,
            depth=nodes[above].depth + 1,
            mark=Mark(1),
            text=text,
            item=item,
        )
    return nodes


def left(nodes: Nodes, names: str, *, limit: int = 10) -> str:
    """Names of what stays of a ranking, the best first."""
    ranked = [Ranked(node=NodeId(name), score=1.0 - place / 100) for place, name in enumerate(names)]
    return "".join(each.node for each in without_repeats(ranked, nodes, limit=limit))


@pytest.mark.parametrize(
    "text",
    [
        "I live in Porto.",
        "I live\n in  Porto. ",
        "Ana (2026-05-08): I live in Porto.",
        "Porto · home\nAna (2026-05-08): I live in Porto.",
    ],
)
@pytest.mark.parametrize("names", ["sl", "ls"])
def test_a_summary_of_one_leaf_gives_way_to_it(text: str, names: str) -> None:
    assert left(made(("s", "", text), ("l", "s", HOME)), names) == "l"


def test_a_leaf_that_is_not_among_the_best_is_spoken_for_by_the_summary() -> None:
    nodes = made(("s", "", HOME.text), ("l", "s", HOME), ("x", "", "other"))
    assert left(nodes, "sxl", limit=2) == "sx"


def test_of_summaries_the_better_one_stays() -> None:
    nodes = made(("a", "", "same"), ("b", "a", "same"), ("c", "b", "same"))
    assert left(nodes, "bca") == "b"
    assert left(nodes, "acb") == "a"


def test_the_next_best_fills_up() -> None:
    nodes = made(("s", "", HOME.text), ("l", "s", HOME), ("x", "", "1"), ("y", "", "2"), ("z", "", "3"))
    assert left(nodes, "lsxyz", limit=3) == "lxy"
    assert left(nodes, "slxyz", limit=3) == "lxy"


def test_what_was_said_twice_stays_twice() -> None:
    yes = Item(event_id=EventId("f"), text=HOME.text, speaker="Ana", at=MAY)
    nodes = made(("s", "", "both"), ("a", "s", HOME), ("b", "s", yes), ("t", "", HOME.text))
    assert left(nodes, "abt") == "abt"


def test_a_leaf_takes_the_place_of_all_summaries_that_say_the_same() -> None:
    nodes = made(("a", "", HOME.text), ("b", "a", "between"), ("c", "b", HOME.text), ("l", "c", HOME))
    assert left(nodes, "abl") == "bl"


def test_blank_texts_and_nodes_that_are_gone() -> None:
    nodes = made(("a", "", ""), ("b", "a", " \n"), ("c", "b", "–"))
    assert left(nodes, "abxc") == "abc"


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("pqr"), st.booleans()), max_size=14), st.data())
def test_nothing_is_lost_and_nothing_repeated(shape: list[tuple[int, str, bool]], data: st.DataObject) -> None:
    triples: list[tuple[str, str, str | Item]] = []
    inner = [""]
    for place, (above, text, is_leaf) in enumerate(shape):
        name = chr(ord("A") + place)
        triples.append((name, inner[above % len(inner)], Item(event_id=EventId(name), text=text) if is_leaf else text))
        if not is_leaf:
            inner.append(name)
    nodes = made(*triples)
    names = "".join(data.draw(st.permutations([name for name in nodes if name != ROOT])))
    limit = data.draw(st.integers(1, 15))
    stay = left(nodes, names, limit=limit)
    assert [name for name in names if name in stay] == list(stay), "in the order given"
    for name in names:
        twins = [other for other in stay if other != name and on_one_path(nodes, name, other) and same(nodes, name, other)]
        assert not (name in stay and twins), "nothing twice"
    assert {nodes[NodeId(name)].text for name in names} == {nodes[NodeId(name)].text for name in stay} or len(stay) == limit


def same(nodes: Nodes, one: str, other: str) -> bool:
    return nodes[NodeId(one)].text == nodes[NodeId(other)].text


def on_one_path(nodes: Nodes, one: str, other: str) -> bool:
    return other in path(nodes, one) or one in path(nodes, other)


def path(nodes: Nodes, name: str) -> list[str]:
    parent = nodes[NodeId(name)].parent
    return [] if parent is None else [parent, *path(nodes, parent)]

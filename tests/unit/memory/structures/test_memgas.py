"""MemGAS against the paper's rule written out over all pairs, and what its check and replay find."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.changes import Create, Grow, Link, LogEntry, Step
from memory.model import ROOT, EmbeddingModel, EventId, Item, Node, NodeId, NodeKind, Vector
from memory.structures import mixture
from memory.structures.memgas import DECIMALS, LEAF_DEPTH, MemGas, unit_ids
from memory.structures.parameters import MemGasParameters
from memory.tree.check import Stored
from memory.tree.planning import Insertion, leaf_id
from memory.tree.similarity import quantize
from memory.tree.view import View
from tests.fakes.change_sets import change_set
from tests.fakes.plain_tree import PlainTree

DIMENSION = 6
MODEL = EmbeddingModel(name="fake:model", dimension=DIMENSION, unrelated_cosine=0.0)
AT = datetime(2026, 1, 1, tzinfo=UTC)
SESSION = 4
"""Turns of a session."""


def memgas(neighbourhood: int = 4096, links_max: int = 1024) -> MemGas:
    return MemGas(MODEL, MemGasParameters(neighbourhood=neighbourhood, links_max=links_max))


def vector(number: int) -> Vector:
    """Of one of three topics."""
    random = np.random.default_rng(number)
    centre = np.eye(DIMENSION, dtype=np.float32)[number % 3]
    return quantize(centre + 0.4 * random.standard_normal(DIMENSION).astype(np.float32))


def insertion(number: int) -> Insertion:
    item = Item(event_id=EventId(f"e{number}"), text=f"text {number}", conversation=f"c{number // SESSION}")
    return Insertion(item=item, vector=vector(number))


def leaf(number: int) -> NodeId:
    return leaf_id(EventId(f"e{number}"), 0)


def grown(structure: MemGas, count: int, batch: int = 5) -> tuple[View, list[LogEntry]]:
    view = View(DIMENSION)
    log: list[LogEntry] = []
    for start in range(0, count, batch):
        plan = structure.plan(view, [insertion(number) for number in range(start, min(count, start + batch))])
        view.seq += 1
        log.append(LogEntry(seq=view.seq, at=AT, steps=plan.steps, events=()))
    return view, log


def links(log: list[LogEntry]) -> dict[NodeId, tuple[NodeId, ...]]:
    return {step.node: step.others for entry in log for step in entry.steps if isinstance(step, Link)}


def over_all_pairs(count: int) -> dict[NodeId, set[NodeId]]:
    """Section 2.2 as plainly as it can be written, turn by turn: a session's other units stay as its first turn made them."""
    units: dict[NodeId, tuple[str, Vector]] = {}
    edges: dict[NodeId, set[NodeId]] = {}
    for number in range(count):
        new = insertion(number)
        own = new.item.conversation
        assert own is not None
        others = {node: float(each @ new.vector) for node, (session, each) in units.items() if session != own}
        fitted = mixture.fit(np.round(list(others.values()), DECIMALS)) if others else None
        if fitted is not None:
            accepted = {node for node, cosine in others.items() if round(cosine, DECIMALS) >= fitted.threshold()}
            if accepted:
                edges[leaf(number)] = accepted
        for unit in unit_ids(new.item):
            units.setdefault(unit, (own, new.vector))
        units[leaf(number)] = (own, new.vector)
    return edges


@settings(max_examples=20, deadline=None, derandomize=True)
@given(count=st.integers(0, 40), batch=st.integers(1, 12))
def test_with_a_wide_neighbourhood_the_edges_are_those_of_all_pairs(count: int, batch: int) -> None:
    _, log = grown(memgas(), count, batch)
    assert {node: set(others) for node, others in links(log).items()} == over_all_pairs(count)


def test_an_insertion_compares_with_a_bounded_neighbourhood() -> None:
    for count in (40, 120):
        view, _ = grown(memgas(neighbourhood=3), count)
        plan = memgas(neighbourhood=3).plan(view, [insertion(1000)])
        assert len(plan.expects) <= 1 + 3 * 3, "the root, and three nodes of each of three sessions"


def test_the_nearest_are_taken_where_there_are_too_many() -> None:
    view, _ = grown(memgas(), 40)
    new = insertion(1000)
    [wide] = [step for step in memgas().plan(view, [new]).steps if isinstance(step, Link)]
    view, _ = grown(memgas(), 40)
    [narrow] = [step for step in memgas(links_max=5).plan(view, [new]).steps if isinstance(step, Link)]
    assert len(wide.others) > 5
    assert narrow.others == wide.others[:5]


def test_a_session_has_one_unit_of_each_granularity_over_its_turns() -> None:
    view, log = grown(memgas(), 10)
    created = [step for entry in log for step in entry.steps if isinstance(step, Create)]
    granularities = [step.attributes["granularity"] for step in created if step.kind is NodeKind.SUMMARY]
    assert granularities == ["session", "summary", "keyword"] * 3
    grows = {step.leaf: step.nodes for entry in log for step in entry.steps if isinstance(step, Grow)}
    for number in range(10):
        units = unit_ids(insertion(number).item)
        assert [branch.id for branch in view.ancestors(leaf(number))] == [*units[::-1], ROOT]
        assert grows[leaf(number)] == units[::-1]


def test_what_belongs_to_no_session_is_one_of_its_own() -> None:
    alone = [Item(event_id=EventId(event), text="x") for event in ("a", "b")]
    chunks = [Item(event_id=EventId("d"), text="x", chunk=chunk, chunks=2) for chunk in range(2)]
    talk = Item(event_id=EventId("a"), text="x", conversation="a")
    assert len({unit_ids(item) for item in (*alone, talk)}) == 3
    assert unit_ids(chunks[0]) == unit_ids(chunks[1])


@pytest.mark.parametrize("batch", [1, 7])
def test_a_refused_plan_is_undone(batch: int) -> None:
    structure = memgas()
    view, _ = grown(structure, 18)
    before = (
        dict(view.homes),
        {node: (branch.routing, list(branch.ids)) for node, branch in view.branches.items()},
        str(view.links),
    )
    plan = structure.plan(view, [insertion(100 + number) for number in range(batch)])
    view.undo(plan.steps)
    assert before == (
        dict(view.homes),
        {node: (branch.routing, list(branch.ids)) for node, branch in view.branches.items()},
        str(view.links),
    )


def test_a_plan_expects_what_it_read_as_it_was_before_the_batch() -> None:
    structure = memgas()
    view, _ = grown(structure, 8)
    routings = {node: branch.routing for node, branch in view.branches.items()}
    # The second is of a session that the first one adds to, and is compared with it after that.
    plan = structure.plan(view, [replace_event(insertion(5), "x"), insertion(1000)])
    assert {one.node: one.routing for one in plan.expects} == routings


def replace_event(one: Insertion, event: str) -> Insertion:
    return replace(one, item=replace(one.item, event_id=EventId(event)))


def test_a_replay_finds_every_turn_with_its_edges() -> None:
    structure = memgas()
    _, log = grown(structure, 30)
    view = View(DIMENSION)
    assert [structure.replay(view, entry) for entry in log] == [(5, [])] * 6


def test_a_replay_finds_an_edge_that_does_not_belong_and_one_that_is_missing() -> None:
    structure = memgas()
    _, log = grown(structure, 30)
    stranger = next(node for node in (leaf(number) for number in range(20)) if node not in links(log)[leaf(29)])
    for change in (lambda others: (*others, stranger), lambda others: others[1:], lambda others: others[:0]):
        steps: list[Step] = []
        for step in log[-1].steps:
            if isinstance(step, Link) and step.node == leaf(29):
                others = change(step.others)
                if others:
                    steps.append(replace(step, others=others))
            else:
                steps.append(step)
        view = View(DIMENSION)
        for entry in log[:-1]:
            structure.replay(view, entry)
        _, found = structure.replay(view, replace(log[-1], steps=tuple(steps)))
        assert {(one.invariant, one.node) for one in found} == {("serial-replay", leaf(29))}


def stored() -> tuple[dict[NodeId, Node], list[Link]]:
    _, log = grown(memgas(), 12)
    plain = PlainTree()
    steps = [step for entry in log for step in entry.steps]
    plain.apply(change_set(*steps))
    return plain.nodes, [step for step in steps if isinstance(step, Link)]


def test_a_sound_tree_has_no_violation() -> None:
    nodes, edges = stored()
    assert memgas().check(Stored(nodes, {}, {}, edges)) == []


@pytest.mark.parametrize(
    ("name", "node", "changes"),
    [
        ("granularity", unit_ids(insertion(0).item)[1], {"attributes": {"granularity": "keyword"}}),
        ("granularity", unit_ids(insertion(0).item)[1], {"parent": unit_ids(insertion(4).item)[0]}),
        ("granularity", leaf(0), {"depth": LEAF_DEPTH - 1}),
        ("own-session", leaf(0), {"parent": unit_ids(insertion(4).item)[2]}),
    ],
)
def test_what_is_broken_is_found_by_name(name: str, node: NodeId, changes: dict[str, object]) -> None:
    nodes, edges = stored()
    nodes[node] = replace(nodes[node], **changes)  # type: ignore[arg-type]
    assert name in MemGas.invariants
    assert name in {violation.invariant for violation in memgas().check(Stored(nodes, {}, {}, edges))}


def test_an_edge_within_a_session_is_found() -> None:
    nodes, edges = stored()
    found = memgas().check(Stored(nodes, {}, {}, [*edges, Link(node=leaf(0), others=(leaf(1),))]))
    assert [(one.invariant, one.node) for one in found] == [("association", leaf(0))]


def test_a_route_says_what_a_turn_would_be_associated_with_and_changes_nothing() -> None:
    view, _ = grown(memgas(), 12)
    before = (len(view), view.root.routing)
    [decision] = memgas().route(view, vector(1000))
    assert decision.best is not None
    assert decision.similarity >= decision.threshold
    assert "units compared are associated" in decision.note
    assert memgas().route(View(DIMENSION), vector(1))[0].best is None
    assert before == (len(view), view.root.routing)

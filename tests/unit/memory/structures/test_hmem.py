"""H-MEM against its rule written out, by vectors and by labels, and what its check and replay find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.changes import Annotate, Create, LogEntry, Rewrite, Step
from memory.model import ROOT, EmbeddingModel, EventId, Item, Mark, Node, NodeId, NodeKind, Vector
from memory.service.labelling import known_labels
from memory.structures.hmem import LABEL, LEAF_DEPTH, HMem
from memory.structures.parameters import HMemParameters
from memory.tree.check import Stored
from memory.tree.planning import Insertion, leaf_id
from memory.tree.similarity import quantize
from memory.tree.view import AT as TIME
from memory.tree.view import View
from tests.fakes.change_sets import change_set
from tests.fakes.plain_tree import PlainTree

DIMENSION = 6
MODEL = EmbeddingModel(name="fake:model", dimension=DIMENSION, unrelated_cosine=0.0)
CUTS = (0.3, 0.6, 0.8)
HMEM = HMem(MODEL, HMemParameters(domain=CUTS[0], category=CUTS[1], trace=CUTS[2]))
AT = datetime(2026, 1, 1, tzinfo=UTC)


def vector(number: int) -> Vector:
    """Of one of three subjects."""
    random = np.random.default_rng(number)
    centre = np.eye(DIMENSION, dtype=np.float32)[number % 3]
    return quantize(centre + 0.4 * random.standard_normal(DIMENSION).astype(np.float32))


def insertion(number: int, *labels: str) -> Insertion:
    return Insertion(item=Item(event_id=EventId(f"e{number}"), text=f"text {number}"), vector=vector(number), labels=labels)


def leaf(number: int) -> NodeId:
    return leaf_id(EventId(f"e{number}"), 0)


def grown(insertions: Sequence[Insertion], batch: int = 5) -> tuple[View, list[LogEntry]]:
    view = View(DIMENSION)
    log: list[LogEntry] = []
    for start in range(0, len(insertions), batch):
        plan = HMEM.plan(view, insertions[start : start + batch])
        view.seq += 1
        log.append(LogEntry(seq=view.seq, at=AT, steps=plan.steps, events=()))
    return view, log


def above(view: View, number: int) -> list[NodeId]:
    """The domain, category and trace of an episode."""
    return [branch.id for branch in view.ancestors(leaf(number))][2::-1]


def as_written(count: int) -> list[tuple[int, int, int]]:
    """The rule as plainly as it can be written, each node named by the item that began it; vectors stay as they were begun."""
    children: dict[tuple[int, ...], list[int]] = {}
    places = []
    for number in range(count):
        path: tuple[int, ...] = ()
        for cut in CUTS:
            below = children.setdefault(path, [])
            near = max(below, key=lambda other: float(vector(other) @ vector(number)), default=None)
            if near is None or float(vector(near) @ vector(number)) < cut:
                below.append(near := number)
            path = (*path, near)
        places.append((path[0], path[1], path[2]))
    return places


@settings(max_examples=15, deadline=None, derandomize=True)
@given(count=st.integers(0, 40), batch=st.integers(1, 12))
def test_items_go_where_the_rule_says(count: int, batch: int) -> None:
    view, _ = grown([insertion(number) for number in range(count)], batch)
    places = as_written(count)
    for number in range(count):
        together = [other for other in range(count) if above(view, other) == above(view, number)]
        assert together == [other for other in range(count) if places[other] == places[number]]


def test_every_episode_is_in_the_fourth_layer() -> None:
    view, _ = grown([insertion(number) for number in range(30)])
    for number in range(30):
        assert [branch.depth for branch in view.ancestors(leaf(number))] == [3, 2, 1, 0]


def test_a_batch_is_as_good_as_one_by_one() -> None:
    items = [insertion(number) for number in range(24)]
    steps = [[step for entry in grown(items, batch)[1] for step in entry.steps] for batch in (1, 24)]
    assert list(map(repr, steps[0])) == list(map(repr, steps[1]))


def test_labels_decide_whatever_the_vectors_say() -> None:
    # Items 0 and 3 are of one subject, 1 is of another.
    view, _ = grown(
        [insertion(0, "Work", "Plans", "Q3"), insertion(1, " work ", "plans", "q3"), insertion(3, "Home", "Plans", "Q3")]
    )
    assert above(view, 0) == above(view, 1)
    assert not set(above(view, 0)) & set(above(view, 3))
    assert [view.attributes[node][LABEL] for node in above(view, 3)] == ["Home", "Plans", "Q3"]
    assert view.attributes[leaf(1)] == {"domain": "work", "category": "plans", "trace": "q3"}


def test_a_label_that_nothing_has_yet_goes_below_what_is_near_and_has_none() -> None:
    view, _ = grown([insertion(0)])
    same = replace(insertion(3, "Work"), vector=vector(0))
    HMEM.plan(view, [same, insertion(1, "Work")])
    assert above(view, 3) == above(view, 0), "near enough, and of no label"
    assert above(view, 1)[0] != above(view, 0)[0], "too far"
    assert view.attributes[above(view, 1)[0]] == {LABEL: "Work"}
    assert above(view, 1)[1] not in view.attributes, "only the domain was named"


def test_an_item_without_labels_goes_by_its_vector() -> None:
    view, _ = grown([insertion(0, "Work", "Plans", "Q3")])
    HMEM.plan(view, [replace(insertion(3), vector=vector(0))])
    assert above(view, 3) == above(view, 0)


def test_a_plan_expects_what_it_compared_and_not_the_trace() -> None:
    view, _ = grown([insertion(number) for number in range(20)])
    routings = {node: branch.routing for node, branch in view.branches.items()}
    plan = HMEM.plan(view, [replace(insertion(100), vector=vector(0)), replace(insertion(101), vector=vector(0))])
    domain, category, trace = above(view, 100)
    assert {one.node: one.routing for one in plan.expects} == {node: routings[node] for node in (ROOT, domain, category)}
    assert trace in routings, "it was there"


def test_a_refused_plan_is_undone() -> None:
    view, _ = grown([insertion(number) for number in range(18)])

    def state() -> object:
        return (
            dict(view.homes),
            {node: (branch.routing, list(branch.ids)) for node, branch in view.branches.items()},
            dict(view.attributes),
        )

    before = state()
    plan = HMEM.plan(view, [insertion(100 + number, "New") for number in range(7)])
    view.undo(plan.steps)
    assert state() == before


def mixed() -> list[Insertion]:
    labels: list[tuple[str, ...]] = [(), ("Work",), ("Work", "Plans", "Q3"), ("Home", "", "Garden")]
    return [insertion(number, *labels[number % 4]) for number in range(30)]


def test_a_replay_finds_every_item_where_it_is() -> None:
    _, log = grown(mixed())
    view = View(DIMENSION)
    assert [HMEM.replay(view, entry) for entry in log] == [(5, [])] * 6


def replayed(log: list[LogEntry], last: Sequence[Step]) -> set[tuple[str, NodeId | None]]:
    view = View(DIMENSION)
    for entry in log[:-1]:
        HMEM.replay(view, entry)
    _, found = HMEM.replay(view, replace(log[-1], steps=tuple(last)))
    return {(one.invariant, one.node) for one in found}


def test_a_replay_finds_an_item_that_went_elsewhere() -> None:
    view, log = grown([insertion(number) for number in range(21)])
    [*_, create, grow] = log[-1].steps
    assert isinstance(create, Create)
    stranger = next(above(view, number)[2] for number in range(20) if above(view, number)[0] != above(view, 20)[0])
    assert replayed(log, [replace(create, parent=stranger), grow]) == {("serial-replay", leaf(20))}


def test_a_replay_finds_a_node_that_was_not_to_be_begun() -> None:
    _, log = grown([insertion(number) for number in range(20)])
    alone = HMEM.plan(View(DIMENSION), [replace(insertion(20), vector=vector(0))])
    log.append(LogEntry(seq=len(log) + 1, at=AT, steps=(), events=()))
    assert replayed(log, alone.steps) == {("serial-replay", leaf(20))}
    assert replayed(log, alone.steps[:3]) == {("serial-replay", step.id) for step in alone.steps[:3] if isinstance(step, Create)}


def test_a_replay_finds_a_label_that_was_not_followed() -> None:
    _, log = grown([*(insertion(number) for number in range(5)), replace(insertion(5), vector=vector(0))])
    [create, grow] = log[-1].steps
    assert isinstance(create, Create)
    assert replayed(log, [create, grow]) == set()
    _, log = grown([insertion(0, "Work"), replace(insertion(5, "Work"), vector=vector(0))], batch=1)
    [create, grow] = log[-1].steps
    assert isinstance(create, Create)
    assert replayed(log, [replace(create, attributes={"domain": "Home"}), grow]) == {("serial-replay", leaf(5))}


def stored() -> dict[NodeId, Node]:
    _, log = grown(mixed())
    plain = PlainTree()
    plain.apply(change_set(*(step for entry in log for step in entry.steps)))
    return plain.nodes


def test_a_sound_tree_has_no_violation() -> None:
    assert HMEM.check(Stored(stored(), {}, {})) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("four-layers", {"depth": LEAF_DEPTH - 1}),
        ("four-layers", {"parent": ROOT}),
        ("own-label", {"attributes": {"domain": "Other"}}),
    ],
)
def test_an_episode_that_is_out_of_place_is_found_by_name(name: str, change: dict[str, object]) -> None:
    nodes = stored()
    nodes[leaf(2)] = replace(nodes[leaf(2)], **change)  # type: ignore[arg-type]
    assert name in HMem.invariants
    assert {(one.invariant, one.node) for one in HMEM.check(Stored(nodes, {}, {}))} == {(name, leaf(2))}


def test_two_nodes_of_one_label_are_found() -> None:
    nodes = stored()
    domains = [node for node in nodes.values() if node.depth == 1][:2]
    for node in domains:
        nodes[node.id] = replace(node, attributes={LABEL: "same"})
    assert "one-label" in {one.invariant for one in HMEM.check(Stored(nodes, {}, {}))}


def test_a_route_says_what_was_compared_and_changes_nothing() -> None:
    view, _ = grown([insertion(number) for number in range(12)])
    before = (len(view), view.root.routing)
    decisions = HMEM.route(view, vector(0))
    assert [decision.threshold for decision in decisions] == list(CUTS)
    assert [decision.best for decision in decisions] == above(view, 0)
    assert HMEM.route(View(DIMENSION), vector(0))[0].best is None
    assert (len(view), view.root.routing) == before


def test_centroids_are_followed_as_they_move() -> None:
    view, _ = grown([insertion(0), insertion(1)])
    domain = above(view, 0)[0]
    view.apply(Rewrite(node=domain, parent=ROOT, vector=vector(2), cohesion=1.0, through=Mark(0)))
    assert HMEM.route(view, vector(2))[0].best == domain


def test_a_threshold_is_a_similarity() -> None:
    with pytest.raises(ValueError, match="trace must be between -1 and 1"):
        HMemParameters(trace=1.1)


def test_only_summaries_and_leaves_are_made() -> None:
    _, log = grown(mixed())
    kinds = {step.kind for entry in log for step in entry.steps if isinstance(step, Create)}
    assert kinds == {NodeKind.SUMMARY, NodeKind.LEAF}


def timed(number: int, day: int | None) -> Insertion:
    plain = insertion(number)
    return replace(plain, item=replace(plain.item, at=None if day is None else AT + timedelta(days=day)))


def test_an_episode_keeps_its_time_and_the_view_the_latest() -> None:
    view, log = grown([timed(0, 5), timed(1, None), timed(2, 9), timed(3, 7)], batch=2)
    assert [view.attributes.get(leaf(number)) for number in range(4)] == [
        {TIME: (AT + timedelta(days=5)).timestamp()},
        None,
        {TIME: (AT + timedelta(days=9)).timestamp()},
        {TIME: (AT + timedelta(days=7)).timestamp()},
    ]
    assert view.latest == (AT + timedelta(days=9)).timestamp()
    again = View(DIMENSION)
    again.catch_up(log)
    assert again.latest == view.latest


def test_a_plan_that_is_undone_leaves_the_latest_time_as_it_was() -> None:
    view, _ = grown([timed(0, 5)])
    before = view.latest
    plan = HMEM.plan(view, [timed(1, 6), timed(2, 3), timed(3, 8)])
    assert view.latest > before
    view.undo(plan.steps)
    assert view.latest == before


def test_a_label_goes_with_the_last_item_that_has_it() -> None:
    """A model took it from what such items say (P6); then it is as if there were none."""
    labelled = [insertion(0, "health", "knee", "surgery"), insertion(1, "Health", "knee", "scars")]
    view, _ = grown([*labelled, insertion(3)], batch=1)
    domain, category, trace = above(view, 0)
    assert HMEM.attributes_left(view, trace, {leaf(0)}) == {LABEL: ""}
    assert HMEM.attributes_left(view, category, {leaf(0)}) == {LABEL: "knee"}
    assert HMEM.attributes_left(view, domain, {leaf(0)}) == {LABEL: "health"}, "of the other, whatever its case"
    for node in (domain, category):
        assert HMEM.attributes_left(view, node, {leaf(0), leaf(1)}) == {LABEL: ""}
    view.apply(Annotate(node=domain, attributes={LABEL: ""}))
    assert known_labels(view) == []
    plan = HMEM.plan(view, [insertion(6, "travel", "plans", "Porto")])
    assert plan.placements[0].parent in view.branches
    assert above(view, 6)[0] == domain, "it is near, and nothing there has its label"

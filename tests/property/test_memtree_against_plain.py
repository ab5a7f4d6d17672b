"""The real tree (blocks, batches, views) grows exactly as the plain one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memory.changes import LogEntry
from memory.model import EmbeddingModel, EventId, Item, NodeId
from memory.structures.memtree import MemTree
from memory.tree import planning
from memory.tree.planning import Insertion, Plan
from memory.tree.similarity import quantize
from memory.tree.thresholds import MemTreeParameters
from memory.tree.view import View
from tests.property.plain_memtree import EPOCH, PlainMemTree

DIMENSION = 8
MODEL = EmbeddingModel(name="test:plain", dimension=DIMENSION, unrelated_cosine=0.0)


def clustered(seed: int, count: int, topics: int, noise: float) -> NDArray[np.float32]:
    """(count, DIMENSION) unit vectors around some topics."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(topics, DIMENSION))
    vectors = centres[random.integers(0, topics, count)] + noise * random.normal(size=(count, DIMENSION))
    return np.array([quantize(vector) for vector in vectors], dtype=np.float32).reshape(count, DIMENSION)


def shape(view: View, names: dict[NodeId, str], node: NodeId | None = None) -> object:
    branch = view.root if node is None else view.branches.get(node)
    if branch is None:
        assert node is not None
        return names[node]
    return frozenset(shape(view, names, child) for child in branch.ids) if branch.ids else "root"


def grow(vectors: NDArray[np.float32], batch: int, parameters: MemTreeParameters) -> tuple[View, dict[NodeId, str], list[Plan]]:
    structure = MemTree(MODEL, parameters)
    view = View(DIMENSION)
    names = {planning.leaf_id(EventId(f"e{index}"), 0): f"e{index}" for index in range(len(vectors))}
    plans = []
    for start in range(0, len(vectors), batch):
        chunk = [
            Insertion(item=Item(event_id=EventId(f"e{start + offset}"), text="x"), vector=vector)
            for offset, vector in enumerate(vectors[start : start + batch])
        ]
        plans.append(structure.plan(view, chunk))
        view.seq += 1
    return view, names, plans


trees = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "count": st.integers(0, 120),
        "topics": st.integers(1, 12),
        "noise": st.sampled_from([0.05, 0.3, 0.8]),
    }
)
parameters = st.builds(
    MemTreeParameters,
    base=st.sampled_from([0.1, 0.4, 0.8]),
    rate=st.sampled_from([0.0, 0.5]),
    depth_max=st.sampled_from([1, 3, 20]),
)


@settings(max_examples=60, deadline=None)
@given(trees, parameters, st.sampled_from([1, 7, 64]))
def test_grows_as_the_plain_tree(tree: dict[str, int], chosen: MemTreeParameters, batch: int) -> None:
    vectors = clustered(tree["seed"], tree["count"], tree["topics"], tree["noise"])
    view, names, _ = grow(vectors, batch, chosen)
    plain = PlainMemTree(chosen.base, chosen.rate, chosen.depth_max)
    for index, vector in enumerate(vectors):
        plain.insert(f"e{index}", vector)

    assert shape(view, names) == plain.shape()


@settings(max_examples=30, deadline=None)
@given(trees, parameters)
def test_replay_agrees_with_what_was_planned(tree: dict[str, int], chosen: MemTreeParameters) -> None:
    vectors = clustered(tree["seed"], tree["count"], tree["topics"], tree["noise"])
    grown, names, plans = grow(vectors, 9, chosen)
    again, structure = View(DIMENSION), MemTree(MODEL, chosen)
    checked = 0
    for seq, plan in enumerate(plans, 1):
        count, violations = structure.replay(again, LogEntry(seq=seq, at=EPOCH, steps=plan.steps, events=()))
        checked += count
        assert violations == []

    assert checked == len(vectors)
    assert shape(again, names) == shape(grown, names)


@settings(max_examples=30, deadline=None)
@given(trees, parameters, st.integers(1, 40))
def test_an_undone_plan_leaves_no_trace(tree: dict[str, int], chosen: MemTreeParameters, more: int) -> None:
    vectors = clustered(tree["seed"], tree["count"] + more, tree["topics"], tree["noise"])
    view, names, _ = grow(vectors[: tree["count"]], 16, chosen)
    before = (shape(view, names), {node: branch.routing for node, branch in view.branches.items()}, dict(view.homes))
    structure = MemTree(MODEL, chosen)
    refused = [
        Insertion(item=Item(event_id=EventId(f"n{index}"), text="x"), vector=vector)
        for index, vector in enumerate(vectors[tree["count"] :])
    ]
    plan = structure.plan(view, refused)
    view.undo(plan.steps)

    assert (shape(view, names), {node: branch.routing for node, branch in view.branches.items()}, dict(view.homes)) == before
    for branch in view.branches.values():
        for slot, child in enumerate(branch.ids):
            inner = view.branches.get(child)
            assert inner is None or (inner.slot == slot and inner.parent is branch)


def test_a_wrong_placement_is_found_in_the_replay() -> None:
    """The check can fail: a leaf put at the root although a child of the root is nearly the same."""
    vectors = clustered(7, 30, 3, 0.1)
    parameters = MemTreeParameters()
    _, _, plans = grow(vectors, 30, parameters)
    structure = MemTree(MODEL, parameters)
    lonely = structure.plan(View(DIMENSION), [Insertion(item=Item(event_id=EventId("stray"), text="x"), vector=vectors[0])])
    view = View(DIMENSION)
    structure.replay(view, LogEntry(seq=1, at=EPOCH, steps=plans[0].steps, events=()))
    _, violations = structure.replay(view, LogEntry(seq=2, at=EPOCH, steps=lonely.steps, events=()))

    assert [violation.invariant for violation in violations] == ["serial-replay"]

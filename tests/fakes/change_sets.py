"""Small change sets, written the way a plan writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from memory.changes import (
    Annotate,
    ChangeSet,
    Cost,
    Create,
    EventEntry,
    Expectation,
    Grow,
    Link,
    Move,
    Recall,
    Remove,
    Rewrite,
    Shrink,
    Step,
)
from memory.model import ROOT, EmbeddingModel, EventId, Item, Mark, NodeId, NodeKind, TreeId, TreeInfo, Vector

TREE = TreeId("tree")
DIMENSION = 8
AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
DIGEST = bytes(range(16))


def tree_info(name: str = TREE, dimension: int = DIMENSION) -> TreeInfo:
    return TreeInfo(
        id=TreeId(name),
        structure="memtree",
        model=EmbeddingModel(name="fake:model", dimension=dimension, unrelated_cosine=0.25),
        parameters={"base": 0.4, "depth_max": 12},
        created_at=AT,
    )


def vector(seed: int | str, dimension: int = DIMENSION) -> Vector:
    """(d,) unit length, representable in float16; the same for the same seed."""
    number = seed if isinstance(seed, int) else int.from_bytes(seed.encode(), "little") % 2**32
    drawn = np.random.default_rng(number).standard_normal(dimension)
    return (drawn / np.linalg.norm(drawn)).astype(np.float16).astype(np.float32)


def item(name: str, **fields: object) -> Item:
    return Item(event_id=EventId(f"e-{name}"), text=f"text of {name}", **fields)  # type: ignore[arg-type]


def leaf(name: str, parent: str = ROOT, depth: int = 1, given: Item | None = None, **attributes: str | float) -> Create:
    made = given or item(name)
    return Create(
        id=NodeId(name),
        parent=NodeId(parent),
        kind=NodeKind.LEAF,
        depth=depth,
        vector=vector(name),
        text=made.text,
        item=made,
        attributes=attributes,
    )


def summary(name: str, parent: str = ROOT, depth: int = 1, *, above: str | None = None, **attributes: str | float) -> Create:
    return Create(
        id=NodeId(name),
        parent=NodeId(parent),
        kind=NodeKind.SUMMARY,
        depth=depth,
        vector=vector(name),
        cohesion=0.5,
        provisional=True,
        text=f"provisional {name}",
        attributes=attributes,
        above=None if above is None else NodeId(above),
    )


def annotate(name: str, **attributes: str | float) -> Annotate:
    return Annotate(node=NodeId(name), attributes=attributes)


def link(name: str, *others: str, weights: Sequence[float] = ()) -> Link:
    return Link(node=NodeId(name), others=tuple(map(NodeId, others)), weights=tuple(weights))


def grow(name: str, *nodes: str) -> Grow:
    return Grow(leaf=NodeId(name), nodes=tuple(map(NodeId, nodes)))


def shrink(name: str, *nodes: str) -> Shrink:
    return Shrink(leaf=NodeId(name), nodes=tuple(map(NodeId, nodes)))


def remove(name: str, parent: str = ROOT) -> Remove:
    return Remove(node=NodeId(name), parent=NodeId(parent))


def recall(name: str, *nodes: str) -> Recall:
    return Recall(leaf=NodeId(name), nodes=tuple(map(NodeId, nodes)))


def move(name: str, old_parent: str, parent: str, depth: int) -> Move:
    return Move(node=NodeId(name), old_parent=NodeId(old_parent), parent=NodeId(parent), depth=depth)


def rewrite(
    name: str,
    parent: str = ROOT,
    *,
    through: int = 0,
    text: str = "rewritten",
    cost: Cost | None = None,
    provisional: bool = False,
) -> Rewrite:
    return Rewrite(
        node=NodeId(name),
        parent=NodeId(parent),
        vector=vector(f"{name}/{text}"),
        cohesion=0.75,
        through=Mark(through),
        text=text,
        cost=cost or Cost(),
        provisional=provisional,
    )


def expect(node: str, *, version: int | None = None, routing: int | None = None) -> Expectation:
    return Expectation(node=NodeId(node), version=version, routing=routing)


def event(name: str, *leaves: str, digest: bytes = DIGEST) -> EventEntry:
    return EventEntry(id=EventId(f"e-{name}"), digest=digest, leaves=tuple(map(NodeId, leaves or (name,))))


def change_set(
    *steps: Step,
    expects: Sequence[Expectation] = (),
    events: Sequence[EventEntry] = (),
    forgets: Sequence[str] = (),
    tree: TreeId = TREE,
) -> ChangeSet:
    forgotten = tuple(EventId(f"e-{name}") for name in forgets)
    return ChangeSet(tree=tree, steps=steps, expects=tuple(expects), events=tuple(events), forgets=forgotten, at=AT)


def insert(name: str, *path: str, expects: Sequence[Expectation] = (), tree: TreeId = TREE) -> ChangeSet:
    """An item attached below the last node of a path of summaries, the topmost first; below the root without one."""
    parent = path[-1] if path else ROOT
    return change_set(leaf(name, parent, len(path) + 1), grow(name, *path), expects=expects, events=[event(name)], tree=tree)


def expand(old: str, new: str, made: str, *path: str, tree: TreeId = TREE) -> ChangeSet:
    """Leaf `old` below `path` is replaced by summary `made`, with `old` and the new leaf `new` below it."""
    parent = path[-1] if path else ROOT
    depth = len(path) + 1
    return change_set(
        summary(made, parent, depth),
        move(old, parent, made, depth + 1),
        grow(old, made),
        leaf(new, made, depth + 1),
        grow(new, *path, made),
        events=[event(new)],
        tree=tree,
    )

"""The SQLite store against a plain tree in dictionaries: random change sets, fitting and not, one by one and at once."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from memory.adapters.embedded.store import SqliteTreeStore
from memory.changes import ChangeSet, Expectation, Move, Step
from memory.model import ROOT, EventId, Node, NodeId, NodeKind, mark
from memory.ports.store import Applied, Seen, Stale
from tests.fakes.change_sets import (
    TREE,
    annotate,
    change_set,
    event,
    expand,
    grow,
    insert,
    leaf,
    link,
    move,
    recall,
    remove,
    rewrite,
    shrink,
    summary,
    tree_info,
)
from tests.fakes.plain_tree import PlainTree, fields_of

T = TypeVar("T")
PICK = st.integers(0, 10**6)


class StoreMachine(RuleBasedStateMachine):
    """Each rule makes a change set that fits the model, and sometimes spoils it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.plain = PlainTree()
        self.names = 0
        self.gone: list[NodeId] = []
        """Ids of leaves that were removed."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def start(self) -> None:
        self.store = self.run(SqliteTreeStore.open(Path(self.folder.name) / "banyan.db"))
        self.run(self.store.create_tree(tree_info()))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
        self.runner.close()
        self.folder.cleanup()

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def pick(self, number: int, *kinds: NodeKind) -> Node | None:
        fitting = [node for node in self.plain.by_mark if node.kind in kinds]
        return fitting[number % len(fitting)] if fitting else None

    def path(self, node: NodeId | None) -> list[NodeId]:
        """Summaries from the top down to the node."""
        found: list[NodeId] = []
        while node is not None and node != ROOT:
            found.insert(0, node)
            node = self.plain.nodes[node].parent
        return found

    def apply(self, changes: ChangeSet) -> None:
        answer = self.run(self.store.apply(changes))
        expected = self.plain.apply(changes)
        if isinstance(expected, Stale):
            assert isinstance(answer, Stale)
            assert answer.seq == expected.seq
            assert set(expected.nodes) <= set(answer.nodes)
        else:
            assert answer == expected

    @rule(at=PICK, count=st.integers(1, 30))
    def insert(self, at: int, count: int) -> None:
        parent = self.pick(at, NodeKind.ROOT, NodeKind.SUMMARY)
        assert parent is not None
        path = self.path(parent.id)
        steps: list[Step] = []
        names = [self.name() for _ in range(count)]
        for name in names:
            steps += [leaf(name, parent.id, parent.depth + 1), grow(name, *path)]
        self.apply(change_set(*steps, events=[event(name) for name in names]))

    @rule(at=PICK)
    def expand(self, at: int) -> None:
        old = self.pick(at, NodeKind.LEAF)
        if old is not None:
            self.apply(expand(old.id, self.name(), self.name(), *self.path(old.parent)))

    @rule(at=PICK, below=PICK)
    def move_leaf(self, at: int, below: int) -> None:
        node, parent = self.pick(at, NodeKind.LEAF), self.pick(below, NodeKind.ROOT, NodeKind.SUMMARY)
        if node is not None and parent is not None and node.parent is not None:
            self.apply(change_set(move(node.id, node.parent, parent.id, parent.depth + 1)))

    @rule(at=PICK, cut=PICK, more=st.booleans())
    def rewrite(self, at: int, cut: int, more: bool) -> None:
        node = self.pick(at, NodeKind.SUMMARY)
        if node is None or node.parent is None:
            return
        waiting = [one for one, _ in self.plain.waiting.get(node.id, [])]
        through = [0, *waiting, mark(self.plain.seq + 1, 2)][cut % (len(waiting) + 2)]
        name = self.name()
        steps: list[Step] = [leaf(name, node.id, node.depth + 1), grow(name, *self.path(node.id))] if more else []
        self.apply(change_set(*steps, rewrite(node.id, node.parent, through=through), summary(self.name(), node.id, 3)))

    @rule(at=PICK, value=st.floats(0.25, 4.0), expected=st.booleans())
    def annotate(self, at: int, value: float, expected: bool) -> None:
        node = self.pick(at, NodeKind.LEAF, NodeKind.SUMMARY)
        if node is not None:
            expects = [Expectation(node=node.id, version=node.version)] if expected else []
            given: dict[str, str | float] = {f"a{at % 3}": value, "label": self.name()}
            self.apply(change_set(annotate(node.id, **given), expects=expects))

    @rule(picks=st.lists(PICK, min_size=1, max_size=4), weighted=st.booleans())
    def make_edges(self, picks: list[int], weighted: bool) -> None:
        found = {node.id: None for pick in picks if (node := self.pick(pick, NodeKind.LEAF, NodeKind.SUMMARY)) is not None}
        name = self.name()
        weights = [0.5 + number for number in range(len(found))] if weighted else []
        self.apply(change_set(leaf(name), link(name, *found, weights=weights)))

    @rule(at=PICK, cut=st.booleans())
    def put_above(self, at: int, cut: bool) -> None:
        """A new summary takes the place of one below the root, which moves below it."""
        below = [node for node in self.plain.by_mark if node.parent == ROOT and node.kind is NodeKind.SUMMARY]
        if not below:
            return
        node, name, new = below[at % len(below)], self.name(), self.name()
        waiting = [one for one, _ in self.plain.waiting.get(node.id, [])]
        before: list[Step] = [rewrite(node.id, through=waiting[len(waiting) // 2])] if cut and waiting else []
        self.apply(
            change_set(
                leaf(name, node.id, node.depth + 1),
                grow(name, node.id),
                *before,
                summary(new, above=node.id, label=new),
                move(node.id, ROOT, new, node.depth),
            )
        )

    @rule(at=PICK, below=PICK)
    def grow_again(self, at: int, below: int) -> None:
        """A leaf that is there comes to wait at summaries that are there, also at one where it waits already."""
        node, top = self.pick(at, NodeKind.LEAF), self.pick(below, NodeKind.SUMMARY)
        if node is not None and top is not None:
            self.apply(change_set(grow(node.id, *self.path(top.id))))

    @rule(picks=st.lists(PICK, min_size=1, max_size=3), cut=PICK, empty=st.booleans(), again=PICK)
    def forget(self, picks: list[int], cut: int, empty: bool, again: int) -> None:
        """Leaves go, with summaries that are empty by then; those above are written anew, and another leaf waits there again."""
        known = [receipt for receipt in self.plain.receipts.values() if not receipt.forgotten]
        if not known:
            return
        events = {(one := known[pick % len(known)]).event_id: one for pick in picks}
        leaves = [name for receipt in events.values() for name in receipt.leaves if name in self.plain.nodes]
        steps: list[Step] = []
        left = {name: node.descendants for name, node in self.plain.nodes.items()}
        children = Counter(node.parent for node in self.plain.nodes.values())
        above: dict[NodeId, None] = {}
        for name in leaves:
            parent = self.plain.nodes[name].parent
            assert parent is not None
            # A leaf that `move_leaf` has moved is not counted where it lies now, and still waits where it lay.
            waits = [node for node, some in self.plain.waiting.items() if any(leaf == name for _, leaf in some)]
            nodes = [node for node in dict.fromkeys([*self.path(parent), *waits]) if left[node]]
            left.update({node: left[node] - 1 for node in nodes})
            steps += [shrink(name, *nodes), remove(name, parent)]
            above.update(dict.fromkeys(reversed(self.path(parent))))
            children[parent] -= 1
            while empty and parent != ROOT and not children[parent]:
                upper = self.plain.nodes[parent].parent
                assert upper is not None
                steps.append(remove(parent, upper))
                children[upper] -= 1
                above.pop(parent, None)
                parent = upper
        for name in sorted(above, key=lambda name: -self.plain.nodes[name].depth):
            upper, waiting = self.plain.nodes[name].parent, [one for one, _ in self.plain.waiting.get(name, [])]
            assert upper is not None
            steps.append(rewrite(name, upper, through=[0, 0, *waiting][cut % (len(waiting) + 2)]))
        stays = [node.id for node in self.plain.by_mark if node.kind is NodeKind.LEAF and node.id not in leaves]
        if stays:
            steps.append(recall(stays[again % len(stays)], *above))
        changes = change_set(*steps)
        self.apply(replace(changes, forgets=(*events, EventId(self.name()))))
        self.gone += leaves

    @rule(at=PICK, below=PICK)
    def use_an_id_again(self, at: int, below: int) -> None:
        parent = self.pick(below, NodeKind.ROOT, NodeKind.SUMMARY)
        free = [name for name in self.gone if name not in self.plain.nodes]
        if free and parent is not None:
            name = free[at % len(free)]
            made = leaf(name, parent.id, parent.depth + 1)
            self.apply(change_set(made, grow(name, *self.path(parent.id)), events=[event(self.name(), name)]))

    @rule(at=PICK, below=PICK)
    def recall(self, at: int, below: int) -> None:
        node, top = self.pick(at, NodeKind.LEAF), self.pick(below, NodeKind.SUMMARY)
        if node is not None and top is not None:
            self.apply(change_set(recall(node.id, *self.path(top.id))))

    @rule(at=PICK, forgotten=PICK)
    def remove_what_stays(self, at: int, forgotten: int) -> None:
        """A summary that has children, an event whose leaves stay, or what is forgotten already."""
        node, events = self.pick(at, NodeKind.SUMMARY), list(self.plain.receipts)
        if node is not None and node.parent is not None:
            self.apply(change_set(remove(node.id, node.parent)))
        if events:
            self.apply(replace(change_set(), forgets=(events[forgotten % len(events)],)))

    @rule(at=PICK, version=st.integers(-1, 1), routing=st.integers(-1, 1))
    def expect(self, at: int, version: int, routing: int) -> None:
        node = self.pick(at, *NodeKind)
        assert node is not None
        expectation = Expectation(node=node.id, version=node.version + version, routing=node.routing + routing)
        self.apply(insert(self.name(), expects=[expectation]))

    @rule(at=PICK)
    def repeat_an_event(self, at: int) -> None:
        events = list(self.plain.receipts)
        if events:
            name = self.name()
            again = replace(event(name), id=events[at % len(events)])
            self.apply(replace(insert(name), events=(event(f"{name}-new", name), again)))

    @rule(at=PICK)
    def name_what_is_not_there(self, at: int) -> None:
        node = self.pick(at, *NodeKind)
        assert node is not None
        wrong: list[Step] = [leaf(node.id), Move(node=node.id, old_parent=NodeId("x"), parent=ROOT, depth=1)]
        self.apply(change_set(leaf(self.name()), wrong[at % 2]))

    @rule(picks=st.lists(PICK, min_size=2, max_size=6))
    def at_once(self, picks: list[int]) -> None:
        """Whatever the order was, the effect is that of the sets one after the other in the order of their numbers."""
        sets = []
        for number in picks:
            node = self.pick(number, *NodeKind)
            assert node is not None
            expectation = Expectation(node=node.id, routing=node.routing)
            parent = node if node.kind is not NodeKind.LEAF else self.plain.nodes[ROOT]
            sets.append(insert(self.name(), *self.path(parent.id), expects=[expectation]))

        async def together() -> list[Applied | Seen | Stale]:
            return await asyncio.gather(*map(self.store.apply, sets))

        answers = list(zip(sets, self.run(together()), strict=True))
        refused = [(answer.seq, changes) for changes, answer in answers if isinstance(answer, Stale)]
        for seq, changes in sorted(
            ((answer.seq, changes) for changes, answer in answers if isinstance(answer, Applied)), key=lambda one: one[0]
        ):
            self._refused_at(seq - 1, refused)
            assert self.plain.apply(changes) == Applied(seq=seq)
        self._refused_at(self.plain.seq, refused)

    def _refused_at(self, seq: int, refused: list[tuple[int, ChangeSet]]) -> None:
        for at, changes in refused:
            if at == seq:
                assert isinstance(self.plain.apply(changes), Stale)

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.run(SqliteTreeStore.open(Path(self.folder.name) / "banyan.db"))

    @invariant()
    def same(self) -> None:
        if hasattr(self, "store"):
            self.run(self.compare())

    async def compare(self) -> None:
        store, plain = self.store, self.plain
        expected = plain.by_mark
        found = [node async for node in store.all_nodes(TREE, vectors=True)]
        assert list(map(fields_of, found)) == list(map(fields_of, expected))
        assert [(one.node, one.depth, one.pending, one.oldest) for one in await store.dirty(TREE)] == plain.dirty
        for node in expected:
            waiting = [(one.mark, one.leaf) for one in await store.contributions(TREE, node.id)]
            assert waiting == plain.waiting.get(node.id, [])
        columns = await store.skeleton(TREE)
        assert (columns.seq, columns.ids) == (plain.seq, [node.id for node in expected])
        assert columns.attributes == {node.id: node.attributes for node in expected if node.attributes}
        assert columns.links == await store.links(TREE) == tuple(plain.links)
        stats = await store.stats(TREE)
        leaves = [node for node in expected if node.kind is NodeKind.LEAF]
        assert (stats.seq, stats.nodes, stats.leaves, stats.events) == (
            plain.seq,
            len(expected),
            len(leaves),
            sum(not receipt.forgotten for receipt in plain.receipts.values()),
        )
        assert (stats.pending, stats.dirty, stats.rewrites) == (
            sum(map(len, plain.waiting.values())),
            len(plain.waiting),
            plain.rewrites,
        )
        assert sum(stats.depths.values()) == len(expected) - 1
        assert sum(stats.leaf_depths.values()) == len(leaves)
        replayed = PlainTree().replay(await store.changes(TREE, 0))
        assert replayed.waiting == plain.waiting
        assert replayed.links == plain.links
        assert {name: fields_of(node, text=False) for name, node in replayed.nodes.items()} == {
            name: fields_of(node, text=False) for name, node in plain.nodes.items()
        }
        assert await store.events(TREE) == {name: receipt.leaves for name, receipt in plain.receipts.items()}
        assert await store.receipts(TREE, list(plain.receipts)) == plain.receipts
        assert (await store.tree(TREE)).floor == plain.floor


StoreMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestStoreMachine = StoreMachine.TestCase

"""Looking at a tree: statistics, drawing, checking, why an item goes where it goes."""

from __future__ import annotations

import statistics
from collections import Counter
from datetime import datetime

from memory.changes import Annotate, Create, Grow, Link, LogEntry, Move, Recall, Remove, Rewrite, Shrink, Step
from memory.errors import NodeNotFoundError, StoreBusyError
from memory.model import MARK_BITS, ROOT, EventId, Mark, Node, NodeId, NodeKind, TreeId, TreeInfo
from memory.ports.claims import NodeClaims
from memory.ports.embedder import Embedder
from memory.ports.store import TreeStore
from memory.results import CheckReport, FailingNode, TreeNode, TreeReport, Violation
from memory.service.embedding import check_model, embed
from memory.service.views import Views
from memory.structures import registry
from memory.tree import check as invariants
from memory.tree.routing import Decision
from memory.tree.view import View

LOG_PER_READ = 500
VIOLATIONS_MAX = 1_000
READS_MAX = 20
CHILDREN_MAX = 1_000
DIRTY_READ = 100_000
FAILING_MAX = 20


class Inspect:
    """
    Reads that people ask for.

    Args:
        store, embedder: the ports.
        views: of this process.
        claims: know which summaries fail; None where that is not asked.
    """

    def __init__(self, *, store: TreeStore, embedder: Embedder, views: Views, claims: NodeClaims | None = None) -> None:
        self._store = store
        self._claims = claims
        self._embedder = embedder
        self._views = views

    async def stats(self, tree: TreeId) -> TreeReport:
        """Counts, shape and cost of a tree."""
        info = await self._store.tree(tree)
        stats = await self._store.stats(tree)
        # A structure that grows upwards leaves room above: people count from the top that is there.
        above = min(stats.depths, default=1) - 1
        depths = [depth - above for depth, count in stats.leaf_depths.items() for _ in range(count)]
        parents = stats.summaries + 1
        return TreeReport(
            tree=tree,
            structure=info.structure,
            embedder=info.model.name,
            dimension=info.model.dimension,
            parameters=info.parameters,
            seq=stats.seq,
            events=stats.events,
            nodes=stats.leaves + stats.summaries,
            leaves=stats.leaves,
            summaries=stats.summaries,
            depth_max=max(stats.depths, default=above) - above,
            depth_median=statistics.median(depths) if depths else 0.0,
            branching=(stats.leaves + stats.summaries) / parents if stats.leaves else 0.0,
            pending=stats.dirty,
            contributions=stats.pending,
            oldest_pending_at=await self._oldest(tree, stats.oldest) if stats.dirty else None,
            failing=await self._failing(tree),
            depths={depth - above: count for depth, count in sorted(stats.depths.items())},
            llm_calls=stats.cost.calls,
            llm_calls_per_item=stats.cost.calls / stats.leaves if stats.leaves else 0.0,
            tokens_in=stats.cost.tokens_in,
            tokens_out=stats.cost.tokens_out,
            rewrites=stats.rewrites,
            rewrites_per_item=stats.rewrites / stats.leaves if stats.leaves else 0.0,
            bytes=stats.bytes,
        )

    async def _oldest(self, tree: TreeId, oldest: Mark | None) -> datetime | None:
        """When the oldest contribution came that waits."""
        if oldest is None:
            dirty = await self._store.dirty(tree, limit=DIRTY_READ)
            if not dirty:
                return None
            oldest = Mark(min(node.oldest for node in dirty))
        entries = await self._store.changes(tree, (oldest >> MARK_BITS) - 1, limit=1)
        return entries[0].at if entries else None

    async def _failing(self, tree: TreeId) -> tuple[FailingNode, ...]:
        found = [] if self._claims is None else await self._claims.failures(tree, limit=FAILING_MAX)
        return tuple(FailingNode(id=one.node, failures=one.failures, reason=one.reason, at=one.at) for one in found)

    async def draw(self, tree: TreeId, *, depth: int | None, children: int, node: NodeId = ROOT) -> TreeNode:
        """
        A tree, or what is below one of its nodes, to be drawn.

        Args:
            tree: which.
            depth: levels below the node; None for all.
            children: at most this many a node, those with most leaves first; the others are counted in `hidden`.
            node: where to start.

        Raises:
            NodeNotFoundError: no such node.
        """
        found = (await self._store.nodes(tree, [node])).get(node)
        if found is None:
            raise NodeNotFoundError(f"tree {tree!r} has no node {node!r}")
        return await self._draw(tree, found, depth, min(children, CHILDREN_MAX), level=await self._level(tree, found))

    async def _level(self, tree: TreeId, node: Node) -> int:
        """Edges from the root."""
        level = 0
        while node.parent is not None:
            level += 1
            if node.parent == ROOT:
                break
            node = (await self._store.nodes(tree, [node.parent]))[node.parent]
        return level

    async def _draw(self, tree: TreeId, node: Node, depth: int | None, width: int, *, level: int) -> TreeNode:
        below: list[Node] = []
        if node.kind is not NodeKind.LEAF:
            after = Mark(0)
            while page := await self._store.children(tree, node.id, limit=CHILDREN_MAX, after=after):
                below.extend(page)
                after = page[-1].mark
        shown = sorted(below, key=lambda child: (-child.descendants, child.mark))[: 0 if depth == 0 else width]
        drawn = [await self._draw(tree, child, None if depth is None else depth - 1, width, level=level + 1) for child in shown]
        leaves = sum(max(1, child.descendants) for child in below) if node.kind is NodeKind.ROOT else node.descendants
        return TreeNode(
            id=node.id,
            kind=node.kind,
            depth=level,
            text=node.text,
            descendants=leaves,
            pending=node.pending,
            provisional=node.provisional,
            event_id=node.item.event_id if node.item else None,
            speaker=node.item.speaker if node.item else None,
            at=node.item.at if node.item else None,
            children=tuple(drawn),
            hidden=len(below) - len(shown),
        )

    async def route(self, tree: TreeId, text: str) -> tuple[Decision, ...]:
        """How a text would be placed now: each depth's best child, similarity, threshold. Writes nothing."""
        info = await self._store.tree(tree)
        check_model(info, self._embedder)
        [vector] = await embed(self._embedder, [text])
        async with self._views.hold(tree) as view:
            return registry.of(info).route(view, vector)

    async def check(self, tree: TreeId) -> CheckReport:
        """
        Every invariant of the stored tree, and the serial replay of its change log (P2).

        Reads the tree twice, node by node and commit by commit; commits that arrive in between are left out by their number.
        Placements before the last removal are applied unjudged: what they were compared with was forgotten.
        """
        for _ in range(READS_MAX):
            stored, seq = await self._read(tree)
            info = await self._store.tree(tree)
            report = await self._compared(info, stored, seq)
            if (await self._store.tree(tree)).floor == info.floor:
                return report
        raise StoreBusyError(f"something was forgotten in tree {tree!r} during each of {READS_MAX} readings; check it again later")

    async def _compared(self, info: TreeInfo, stored: invariants.Stored, seq: int) -> CheckReport:
        """What was read against the change log up to the same commit."""
        structure = registry.of(info)
        violations = structure.check(stored)
        view = View(info.model.dimension)
        replayed = unverifiable = 0
        leafless: set[EventId] = set()
        while view.seq < seq:
            entries = [entry for entry in await self._store.changes(info.id, view.seq, limit=LOG_PER_READ) if entry.seq <= seq]
            if not entries:
                violations.append(
                    Violation(invariant="log-shape", node=None, detail=f"the change log ends at {view.seq}, not at {seq}")
                )
                break
            for entry in entries:
                broken = _missing(view, entry) or _unreplayable(view, entry)
                if broken is not None:
                    violations = [*invariants.check(stored), *violations, broken]
                    return _report(info.id, seq, stored, replayed, violations, unverifiable)
                if entry.steps and all(isinstance(step, Annotate) for step in entry.steps):
                    leafless.update(entry.events)
                leafless.update(entry.forgets)
                if entry.seq <= info.floor:
                    view.catch_up([entry])
                    unverifiable += sum(isinstance(step, Create) and step.kind is NodeKind.LEAF for step in entry.steps)
                    continue
                count, found = structure.replay(view, entry)
                replayed += count
                violations.extend(found)
                view.seq = entry.seq
        violations = [*invariants.check(stored._replace(leafless=leafless)), *violations, *_shape_differences(view, stored)]
        return _report(info.id, seq, stored, replayed, violations, unverifiable)

    async def _read(self, tree: TreeId) -> tuple[invariants.Stored, int]:
        """Nodes, events and contributions as of one commit: read again while commits come in between."""
        for _ in range(READS_MAX):
            seq = (await self._store.tree(tree)).seq
            nodes = {node.id: node async for node in self._store.all_nodes(tree, vectors=True)}
            events = await self._store.events(tree)
            dirty = await self._store.dirty(tree, limit=len(nodes) + 1)
            contributions = {}
            for waiting in dirty:
                found = await self._store.contributions(tree, waiting.node, limit=waiting.pending + 1)
                contributions[waiting.node] = [(contribution.mark, contribution.leaf) for contribution in found]
            links = await self._store.links(tree)
            if (await self._store.tree(tree)).seq == seq:
                return invariants.Stored(nodes, events, contributions, links), seq
        raise StoreBusyError(
            f"tree {tree!r} was changed during each of {READS_MAX} readings; check it while fewer writers are at work"
        )


def _report(
    tree: TreeId, seq: int, stored: invariants.Stored, replayed: int, violations: list[Violation], unverifiable: int
) -> CheckReport:
    return CheckReport(
        tree=tree,
        seq=seq,
        nodes=len(stored.nodes.keys() - {ROOT}),
        replayed=replayed,
        violations=tuple(violations[:VIOLATIONS_MAX]),
        unverifiable=unverifiable,
    )


def _missing(view: View, entry: LogEntry) -> Violation | None:
    """Commits that the log does not have although it goes on after them."""
    if entry.seq == view.seq + 1:
        return None
    gone = f"commit {view.seq + 1}" if entry.seq == view.seq + 2 else f"commits {view.seq + 1} to {entry.seq - 1}"
    return Violation(invariant="log-shape", node=None, detail=f"the change log goes on with {entry.seq} and lacks {gone}")


def _unreplayable(view: View, entry: LogEntry) -> Violation | None:
    """A log entry that speaks of nodes that are not there, or makes some that are; replaying it would only raise."""
    creates = Counter(step.id for step in entry.steps if isinstance(step, Create))
    made = creates.keys()
    for step in entry.steps:
        if isinstance(step, Create) and (step.id in view or creates[step.id] > 1):
            return Violation(invariant="log-shape", node=step.id, detail=f"seq {entry.seq} makes a node that is there")
        for node in _named(step):
            if node not in view and node not in made:
                return Violation(invariant="log-shape", node=node, detail=f"seq {entry.seq} speaks of a node that is not there")
    return None


def _named(step: Step) -> tuple[NodeId, ...]:
    """Nodes that must be there."""
    match step:
        case Create():
            return (step.parent,) if step.above is None else (step.parent, step.above)
        case Move():
            return step.node, step.old_parent, step.parent
        case Grow() | Shrink() | Recall():
            return step.leaf, *step.nodes
        case Rewrite() | Remove():
            return step.node, step.parent
        case Annotate():
            return (step.node,)
        case Link():
            return step.node, *step.others


def _shape_differences(view: View, stored: invariants.Stored) -> list[Violation]:
    found = []
    nodes = stored.nodes
    for node in nodes.values():
        if node.id not in view:
            found.append(Violation(invariant="log-shape", node=node.id, detail="is stored, but the change log does not make it"))
            continue
        parent = view.parent(node.id)
        branch = view.branches.get(node.id)
        by_log = parent.id if parent else None
        if by_log != node.parent:
            found.append(
                Violation(invariant="log-shape", node=node.id, detail=f"hangs under {node.parent}, by the log under {by_log}")
            )
        if branch is not None and (branch.routing != node.routing or branch.version != node.version):
            detail = f"has version {node.version} and routing {node.routing}, by the log {branch.version} and {branch.routing}"
            found.append(Violation(invariant="log-shape", node=node.id, detail=detail))
        if node.attributes != view.attributes.get(node.id, {}):
            found.append(Violation(invariant="attributes", node=node.id, detail="has other attributes than the log gave it"))
    edges = View(view.dimension)
    for link in stored.links:
        edges.apply(link)
    found.extend(
        Violation(invariant="links", node=node, detail="has other edges than the log gave it")
        for node in {*edges.links, *view.links}
        if edges.links.get(node) != view.links.get(node)
    )
    found.extend(
        Violation(invariant="log-shape", node=node, detail="is made by the change log, but not stored")
        for node in (*view.homes, *view.branches)
        if node not in nodes
    )
    return found

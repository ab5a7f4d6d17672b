"""
Events that come again (design section 3, step 6).

If a worker dies between its commit and the sending of its summary jobs, the event is delivered again and answered as seen; the jobs
of those of its ancestors that are still dirty are put again. So the input is the outbox, and none other is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from memory.model import ROOT, EventId, Node, NodeId, TreeId
from memory.ports.jobs import SummaryJobs
from memory.ports.store import TreeStore


async def put_again(store: TreeStore, jobs: SummaryJobs, tree: TreeId, events: Iterable[EventId]) -> int:
    """
    Put the jobs of every ancestor of the events' leaves that has contributions.

    Reads one level of the tree at a time, for all events together.

    Returns:
        How many jobs were put.
    """
    receipts = await store.receipts(tree, list(events))
    wanted = {leaf for receipt in receipts.values() for leaf in receipt.leaves}
    seen: dict[NodeId, Node] = {}
    while wanted:
        found = await store.nodes(tree, sorted(wanted))
        seen |= found
        wanted = {node.parent for node in found.values() if node.parent is not None and node.parent != ROOT} - seen.keys()
    dirty = [node for node in seen.values() if node.pending]
    dirty.sort(key=lambda node: -node.depth)
    await jobs.put(tree, [node.id for node in dirty])
    return len(dirty)

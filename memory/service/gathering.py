"""What one aggregation takes in, read from the store (design section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory.model import Mark, Node, TreeId, Vector
from memory.ports.store import Contribution, TreeStore
from memory.ports.summarizer import within_budget
from memory.retrieval.text import attributed_text

CONTRIBUTIONS_PER_READ = 1_000


@dataclass(frozen=True, slots=True)
class Work:
    """What one aggregation takes in."""

    texts: tuple[str, ...]
    """Empty when all leaves that wait are gone: nothing is asked then."""
    existing: str
    covered: int
    means: tuple[tuple[Vector, float, int], ...]
    through: Mark
    leaves: int
    """That wait and are taken in."""
    left: bool
    """Whether more waits than is taken in."""


async def gather(
    store: TreeStore, tree: TreeId, node: Node, waiting: Sequence[Contribution], *, tokens_max: int, fold: bool = True
) -> Work:
    """
    As much of what waits as one call takes; all of it through the children's texts where that is too much.

    Args:
        store: of the tree.
        tree: which.
        node: with its vector.
        waiting: its contributions, oldest first, at least one.
        tokens_max: the call's budget.
        fold: whether children's texts may stand for the items.
    """
    leaves = await store.nodes(tree, [contribution.leaf for contribution in waiting], vectors=True)
    present = [(contribution.mark, leaves[contribution.leaf]) for contribution in waiting if contribution.leaf in leaves]
    texts = [attributed_text(leaf.item) for _, leaf in present if leaf.item is not None]
    assert len(texts) == len(present)
    count = within_budget(texts, tokens_max)
    # Leaves that are gone are passed over, and trimmed with those before them.
    through = present[count - 1][0] if count < len(present) else waiting[-1].mark
    existing = "" if node.provisional else node.text
    covered = 0 if node.provisional else node.covered
    assert node.vector is not None
    before = [(node.vector, node.cohesion, covered)] if covered else []
    taken = [leaf for _, leaf in present[:count]]
    means = (*before, *((leaf.vector, 1.0, 1) for leaf in taken if leaf.vector is not None))
    left = count < len(present) or node.pending > len(waiting)
    if fold and texts and left and (folded := await _folded(store, tree, node, tokens_max)) is not None:
        everything = (*before, *((leaf.vector, 1.0, 1) for _, leaf in present if leaf.vector is not None))
        return Work(folded, "", 0, everything, waiting[-1].mark, len(present), left=node.pending > len(waiting))
    return Work(tuple(texts[:count]), existing, covered, means, through, count, left)


async def _folded(store: TreeStore, tree: TreeId, node: Node, tokens_max: int) -> tuple[str, ...] | None:
    """The children's texts, when more waits than the budget holds and all children are up to date and fit it."""
    children = await store.children(tree, node.id, limit=CONTRIBUTIONS_PER_READ)
    if len(children) >= CONTRIBUTIONS_PER_READ or any(child.pending for child in children):
        return None
    texts = [attributed_text(child.item) if child.item is not None else child.text for child in children]
    return tuple(texts) if within_budget(texts, tokens_max) == len(texts) else None

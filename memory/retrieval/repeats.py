"""One text on one path, once: a summary of a single leaf says what that says, and an extractive one may say what another does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from memory.model import Node, NodeId
from memory.retrieval.strategy import Ranked
from memory.retrieval.text import attributed_text
from memory.tree.provisional import without_phrases


def without_repeats(ranked: Sequence[Ranked], nodes: Mapping[NodeId, Node], *, limit: int) -> list[Ranked]:
    """
    The best nodes, none of which says what one above or below it says.

    Of nodes on one path with the same text the best stays, but a leaf is preferred to the summaries above it when it is among
    the best itself: it says where the text comes from. Texts are the same when their words are, whatever stands between them; who
    said it and when, which summaries put before a leaf's words, and the key phrases before a summary do not count. Equal
    texts on different paths were said twice, and stay.

    Args:
        ranked: best first.
        nodes: those that are ranked, and all above them; what is ranked and not in it is left out.
        limit: nodes wanted, 1 or more.

    Returns:
        At most `limit`, best first; the first ones of `ranked` where nothing is repeated.
    """
    kept: dict[NodeId, Ranked] = {}
    said: dict[str, list[NodeId]] = {}
    for each in ranked:
        if len(kept) == limit:
            break
        node = nodes.get(each.node)
        if node is None:
            continue
        sayings = _sayings(node)
        repeated = [
            other
            for saying in sayings
            for other in said.get(saying, ())
            if other in kept and (_is_above(nodes[other], node, nodes) or _is_above(node, nodes[other], nodes))
        ]
        # A leaf takes the place of summaries only, and then of at least one: what it repeats stays said.
        if repeated and node.item is None:
            continue
        for other in repeated:
            kept.pop(other, None)
        kept[node.id] = each
        for saying in sayings:
            said.setdefault(saying, []).append(node.id)
    return list(kept.values())


def _sayings(node: Node) -> frozenset[str]:
    """The forms in which a node's text may stand in another one; none of a blank text."""
    texts = (node.text, without_phrases(node.text) if node.item is None else attributed_text(node.item))
    return frozenset(filter(None, (" ".join(text.split()) for text in texts)))


def _is_above(upper: Node, lower: Node, nodes: Mapping[NodeId, Node]) -> bool:
    return any(node.id == upper.id for node in _above(lower, nodes))


def _above(node: Node, nodes: Mapping[NodeId, Node]) -> Iterator[Node]:
    above = nodes.get(node.parent) if node.parent is not None else None
    while above is not None:
        yield above
        above = nodes.get(above.parent) if above.parent is not None else None

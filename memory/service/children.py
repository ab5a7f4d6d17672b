"""
Summaries that are made of their children's texts (HAT): what one takes in, when it can be made, and what need not be paid for.

The children come first: a parent is made once none of them has anything pending. What it says is remembered by the texts it was
made of, so that taking a child away and putting it back, or asking again after a refused commit, costs no call (HAT, slide "Nodes
in HAT", prev_states). It is remembered in this process's memory alone, and bounded: a text that was forgotten must not outlive it
in a store.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from memory.model import Mark, Node, NodeId, NodeKind, TreeId, Vector
from memory.ports.store import Contribution, TreeStore
from memory.ports.summarizer import Summary
from memory.retrieval.text import attributed_text
from memory.service.gathering import Work

CHILDREN_MAX = 1_000
"""Children that are read of one node; structures that are summarized this way have far fewer."""
TEXTS_MAX = 1_000
"""Texts that a summary is made anew of; of more, every second, or third, and so on."""
ANSWERS_MAX = 4_096
ANSWER_CHARACTERS_MAX = 8_000_000
"""Over all that are remembered."""


class NotReady(Exception):  # noqa: N818  # no error: an answer on its way
    """
    Children are not up to date yet: there is nothing to be made of them.

    Args:
        nodes: those children.
    """

    def __init__(self, nodes: Sequence[NodeId]) -> None:
        super().__init__(f"waits for {', '.join(nodes)}")
        self.nodes = tuple(nodes)


async def gather_children(store: TreeStore, tree: TreeId, node: Node, waiting: Sequence[Contribution]) -> Work:
    """
    All children's texts, in time order, in place of the text there is.

    Args:
        store: of the tree.
        tree: which.
        node: to be summarized.
        waiting: its contributions, oldest first, at least one, read before this call: what the children cover now holds them.

    Raises:
        NotReady: a child has something pending.
    """
    children = await store.children(tree, node.id, limit=CHILDREN_MAX)
    if pending := [child.id for child in children if child.pending]:
        raise NotReady(pending)
    vectors = await store.nodes(tree, [child.id for child in children], vectors=True)
    means: list[tuple[Vector, float, int]] = []
    for child in children:
        found = vectors.get(child.id)
        if found is not None and found.vector is not None:
            means.append((found.vector, child.cohesion, max(1, child.descendants)))
    texts = tuple(attributed_text(child.item) if child.item is not None else child.text for child in children)
    return Work(texts, "", 0, tuple(means), waiting[-1].mark, len(waiting), left=node.pending > len(waiting))


async def gather_anew(store: TreeStore, tree: TreeId, node: Node, waiting: Sequence[Contribution]) -> Work:
    """
    All that is left below a summary which lost what it was made of, because something there was forgotten.

    That is what its children say, and the items that are not in what they say yet; no child need be up to date, as long as it is
    not to be made anew itself. A summary that is an only child says nothing of its own: its children are taken instead.

    Args:
        store: of the tree.
        tree: which.
        node: to be summarized.
        waiting: all its contributions, at least one, read before this call.

    Raises:
        NotReady: a child is to be made anew first.
    """
    children = await _every_child(store, tree, node.id)
    while len(children) == 1 and children[0].kind is NodeKind.SUMMARY:
        children = await _every_child(store, tree, children[0].id)
    if lost := [child.id for child in children if child.pending and lost_its_sources(child)]:
        raise NotReady(lost)
    unsaid: dict[NodeId, None] = {}
    for child in children:
        if child.pending:
            found = await store.contributions(tree, child.id, limit=child.pending)
            unsaid.update(dict.fromkeys(one.leaf for one in found))
    # After what waits was read: a child that was made meanwhile says now what no longer waits there.
    names = [*(child.id for child in children), *unsaid]
    now = await store.nodes(tree, names, vectors=True)
    sources = [now[name] for name in names if name in now and (now[name].kind is NodeKind.LEAF or now[name].covered)]
    means = tuple((one.vector, one.cohesion, max(1, one.covered)) for one in sources if one.vector is not None)
    # Of very many, some from everywhere: what is asked of a model for one summary has to end.
    step = -(-len(sources) // TEXTS_MAX) or 1
    texts = tuple(attributed_text(one.item) if one.item is not None else one.text for one in sources[::step])
    return Work(texts, "", 0, means, waiting[-1].mark, len(waiting), left=node.pending > len(waiting))


def lost_its_sources(node: Node) -> bool:
    """Whether a summary is to be made anew: what it covered before is not in its text, which is provisional."""
    return node.provisional and node.covered > 0


async def _every_child(store: TreeStore, tree: TreeId, node: NodeId) -> list[Node]:
    found: list[Node] = []
    while page := await store.children(tree, node, limit=CHILDREN_MAX, after=found[-1].mark if found else Mark(0)):
        found += page
        if len(page) < CHILDREN_MAX:
            break
    return found


class Answers:
    """Summaries by the texts they were made of, the most recently used."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, str] = OrderedDict()
        self._characters = 0
        self.hits = 0
        """Calls that were not made."""

    @staticmethod
    def key(summarizer: str, texts: Sequence[str]) -> bytes:
        """Of the texts in their order, under one summarizer."""
        digest = hashlib.blake2b(summarizer.encode(), digest_size=16)
        for text in texts:
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
        return digest.digest()

    def get(self, key: bytes) -> Summary | None:
        """What was answered, at no cost; None where that is not remembered."""
        text = self._kept.get(key)
        if text is None:
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return Summary(text=text)

    def add(self, key: bytes, text: str) -> None:
        """Remember an answer."""
        self._characters += len(text) - len(self._kept.pop(key, ""))
        self._kept[key] = text
        while len(self._kept) > ANSWERS_MAX or (self._characters > ANSWER_CHARACTERS_MAX and len(self._kept) > 1):
            _, dropped = self._kept.popitem(last=False)
            self._characters -= len(dropped)

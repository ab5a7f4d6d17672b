"""
Who speaks in a tree, and what they are about (H-MEM, section 3.1: an episode keeps the user's profile beside its text and time).

The paper's model is given the profile together with the memories that were found. Here it is kept by speaker, made of what they
said: key phrases, the statements that they make of themselves, and when they spoke. A profile is made when it is first asked for,
of the whole tree, and follows the change log from then on; it lives in the process, and in the store only in the turns that it is
made of, so that nothing that is forgotten there outlives its next use. Whoever is cut off while it is made leaves what was read so
far to the next one who asks.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from weakref import WeakValueDictionary

from memory.changes import Annotate, Create, Grow, Link, LogEntry, Move, Rewrite
from memory.model import MARK_BITS, Attributes, EventId, Item, Node, NodeId, NodeKind, TreeId, TreeInfo
from memory.ports.keywords import KeywordExtractor
from memory.ports.statements import StatementFinder
from memory.ports.store import TreeStore
from memory.results import Fact, Profile, Speaker
from memory.structures.parameters import HMemParameters
from memory.structures.registry import KINDS
from memory.structures.weights import weight

TREES_MAX = 64
BYTES_MAX = 256_000_000
"""Memory of all trees together, roughly; the least recently asked leave. One may exceed it alone."""
TOLD_BYTES, TURN_BYTES = 1_500, 100
"""Memory of a statement with its words, and of a turn that no phrases stand for yet or a conversation, roughly."""
SPEAKERS_MAX = 1_000
"""Of a tree; those who come later have no profile."""
FACTS_KEPT = 400
"""Of a speaker; of more the best are kept."""
FACTS_MAX = 100
TEXTS_PER_CALL = 200
LOG_PER_READ = 100
INLINE_CHARACTERS_MAX = 4_000
"""Of texts whose statements are found in the event loop's thread, which takes milliseconds; of more in another."""
ALIKE = 0.6
"""Share of words in common from which on two facts are one, and the later stands."""
_KNOWN = (Create, Move, Grow, Rewrite, Annotate, Link)
"""Steps that leave every leaf where it is; after any other the profiles are made anew."""


@dataclass(slots=True)
class _Told:
    """A statement, and the leaf it comes from."""

    leaf: NodeId
    event: EventId
    text: str
    words: frozenset[str]
    worth: float
    at: datetime | None
    attributes: Attributes


@dataclass(slots=True)
class _Known:
    """What is known of a speaker."""

    turns: int = 0
    conversations: set[str] = field(default_factory=set)
    first: datetime | None = None
    last: datetime | None = None
    told: list[_Told] = field(default_factory=list)
    phrases: tuple[str, ...] = ()
    covered: int = 0
    """Turns that the phrases stand for."""
    unread: list[NodeId] = field(default_factory=list)
    """Leaves that they do not stand for yet; their texts stay in the store."""


@dataclass(slots=True)
class _Kept:
    """A tree's speakers, as of a commit."""

    seq: int = 0
    at: datetime | None = None
    """When that commit was made; tells it from one of the same number in another history."""
    losses: int = -1
    through: int = -1
    """Mark of the last leaf that was read of the whole tree."""
    whole: bool = False
    """Whether all leaves as of the commit were."""
    bytes: int = 0
    """As of the last use."""
    speakers: dict[str, _Known] = field(default_factory=dict)
    latest: float = float("-inf")


class Profiles:
    """
    Keeps profiles.

    Args:
        store: the trees.
        keywords: finds key phrases.
        statements: finds facts; from any thread.
        bytes_max: memory of all trees together.
    """

    def __init__(
        self, *, store: TreeStore, keywords: KeywordExtractor, statements: StatementFinder, bytes_max: int = BYTES_MAX
    ) -> None:
        self._store = store
        self._bytes_max = bytes_max
        self._keywords = keywords
        self._statements = statements
        self._kept: OrderedDict[TreeId, _Kept] = OrderedDict()
        self._locks: WeakValueDictionary[TreeId, asyncio.Lock] = WeakValueDictionary()

    async def speakers(self, tree: TreeId) -> list[Speaker]:
        """Who speaks in a tree, those with most turns first."""
        async with self._locks.setdefault(tree, asyncio.Lock()):
            kept = await self._fresh(await self._store.tree(tree))
            found = [Speaker(name=name, turns=known.turns, last_at=known.last) for name, known in kept.speakers.items()]
        return sorted(found, key=lambda each: (-each.turns, each.name))

    async def profile(self, tree: TreeId, speaker: str, *, facts: int = 20) -> Profile | None:
        """
        The profile of a speaker; None when nobody of that name speaks in the tree.

        Args:
            tree: which.
            speaker: as in the turns.
            facts: statements at most, 0 to 100, those that say most and weigh most first.

        Raises:
            TreeNotFoundError: no such tree.
        """
        async with self._locks.setdefault(tree, asyncio.Lock()):
            info = await self._store.tree(tree)
            kept = await self._fresh(info)
            known = kept.speakers.get(speaker)
            if known is None:
                return None
            await self._read(tree, known)
            weighed = [(each, _weight(info, each, kept.latest)) for each in known.told]
            return Profile(
                tree=tree,
                speaker=speaker,
                turns=known.turns,
                conversations=len(known.conversations),
                first_at=known.first,
                last_at=known.last,
                phrases=known.phrases,
                facts=_chosen(weighed, min(facts, FACTS_MAX)),
                seq=kept.seq,
            )

    def drop(self, tree: TreeId) -> None:
        """Let go of a tree's profiles; they are made anew when they are asked for."""
        self._kept.pop(tree, None)

    async def _fresh(self, info: TreeInfo) -> _Kept:
        """The tree's speakers, as of its last commit."""
        losses = self._store.losses(info.id)
        kept = self._kept.pop(info.id, None) or _Kept()
        try:
            if kept.losses != losses or not await self._is_of(info, kept) or not await self._level(info, kept):
                kept = _Kept(seq=info.seq, at=await self._made_at(info.id, info.seq), losses=losses)
                await self._make(info.id, kept)
        finally:
            # Whoever is cut off leaves what was read to the next.
            self._keep(info.id, kept)
        return kept

    def _keep(self, tree: TreeId, kept: _Kept) -> None:
        kept.bytes = sum(TOLD_BYTES * len(known.told) + TURN_BYTES * len(known.unread) for known in kept.speakers.values())
        kept.bytes += sum(TURN_BYTES * len(known.conversations) for known in kept.speakers.values())
        self._kept[tree] = kept
        total = sum(each.bytes for each in self._kept.values())
        while len(self._kept) > 1 and (total > self._bytes_max or len(self._kept) > TREES_MAX):
            total -= self._kept.popitem(last=False)[1].bytes

    async def _is_of(self, info: TreeInfo, kept: _Kept) -> bool:
        """Whether the store's commit of that number is the one that was read once: it may have been restored from a copy since."""
        return kept.seq <= info.seq and await self._made_at(info.id, kept.seq) == kept.at

    async def _made_at(self, tree: TreeId, seq: int) -> datetime | None:
        found = await self._store.changes(tree, seq - 1, limit=1) if seq else []
        return found[0].at if found and found[0].seq == seq else None

    async def _level(self, info: TreeInfo, kept: _Kept) -> bool:
        """Bring it up to date; False when that cannot be done by adding."""
        if not kept.whole:
            await self._make(info.id, kept)
        while kept.seq < info.seq:
            entries = await self._store.changes(info.id, kept.seq, limit=LOG_PER_READ)
            if not entries or any(not isinstance(step, _KNOWN) for entry in entries for step in entry.steps):
                return False
            await self._apply(info.id, kept, entries)
        return True

    async def _make(self, tree: TreeId, kept: _Kept) -> None:
        """Read the whole tree as of a commit, from where an earlier call was cut off."""
        page: list[Node] = []
        async for node in self._store.all_nodes(tree):
            if kept.through < node.mark and node.mark >> MARK_BITS <= kept.seq:
                page.append(node)
            if len(page) >= TEXTS_PER_CALL:
                await self._add_page(kept, page)
                page = []
        await self._add_page(kept, page)
        kept.whole = True

    async def _add_page(self, kept: _Kept, page: Sequence[Node]) -> None:
        told = await self._told(page)
        for node, found in zip(page, told, strict=True):
            self._add(kept, node, found)
        kept.through = max([kept.through, *(node.mark for node in page)])

    async def _apply(self, tree: TreeId, kept: _Kept, entries: Sequence[LogEntry]) -> None:
        steps = [step for entry in entries for step in entry.steps]
        leaves = [step.id for step in steps if isinstance(step, Create) and step.kind is NodeKind.LEAF]
        found = await self._store.nodes(tree, leaves)
        nodes = [found[leaf] for leaf in leaves if leaf in found]
        told = await self._told(nodes)
        # From here on nothing is waited for: commits are taken over whole, or not at all.
        for node, said in zip(nodes, told, strict=True):
            self._add(kept, node, said)
        changed: dict[NodeId, dict[str, str | float]] = {}
        for step in steps:
            if isinstance(step, Annotate):
                changed.setdefault(step.node, {}).update(step.attributes)
        if changed:
            for known in kept.speakers.values():
                for each in known.told:
                    if each.leaf in changed:
                        each.attributes = {**each.attributes, **changed[each.leaf]}
        kept.seq, kept.at = entries[-1].seq, entries[-1].at

    async def _told(self, nodes: Sequence[Node]) -> list[list[_Told]]:
        """What each of the nodes says of its speaker; of many found by another thread, which changes nothing that is kept."""
        find = partial(_found, self._statements, nodes)
        return find() if sum(len(node.text) for node in nodes) <= INLINE_CHARACTERS_MAX else await asyncio.to_thread(find)

    def _add(self, kept: _Kept, node: Node, told: Sequence[_Told]) -> None:
        item = node.item
        if item is None or item.speaker is None:
            return
        known = kept.speakers.get(item.speaker)
        if known is None:
            if len(kept.speakers) >= SPEAKERS_MAX:
                return
            known = kept.speakers[item.speaker] = _Known()
        known.turns += 1
        if item.conversation is not None:
            known.conversations.add(item.conversation)
        if item.at is not None:
            known.first = item.at if known.first is None else min(known.first, item.at)
            known.last = item.at if known.last is None else max(known.last, item.at)
            kept.latest = max(kept.latest, item.at.timestamp())
        known.unread.append(node.id)
        known.told += told
        if len(known.told) > 2 * FACTS_KEPT:
            known.told = sorted(known.told, key=lambda each: -each.worth)[:FACTS_KEPT]

    async def _read(self, tree: TreeId, known: _Known) -> None:
        """Have the phrases stand for everything that was said; a portion that was read is not read again."""
        while known.unread:
            some = known.unread[:TEXTS_PER_CALL]
            nodes = await self._store.nodes(tree, some)
            texts = [nodes[leaf].text for leaf in some if leaf in nodes]
            if texts:
                found = await self._keywords.keywords(texts, existing=known.phrases, covered=known.covered)
                known.phrases = found.phrases
                known.covered += len(texts)
            del known.unread[: len(some)]


def _found(statements: StatementFinder, nodes: Sequence[Node]) -> list[list[_Told]]:
    return [[] if node.item is None or node.item.speaker is None else _of(statements, node, node.item) for node in nodes]


def _of(statements: StatementFinder, node: Node, item: Item) -> list[_Told]:
    found = ((each, frozenset(each.text.casefold().split())) for each in statements.statements(node.text))
    return [_Told(node.id, item.event_id, each.text, words, each.worth, item.at, node.attributes) for each, words in found if words]


def _weight(info: TreeInfo, told: _Told, latest: float) -> float:
    if not KINDS[info.structure].structure.keeps_weights:
        return 1.0
    return weight(told.attributes, latest, HMemParameters.from_mapping(info.parameters))


def _chosen(weighed: Iterable[tuple[_Told, float]], most: int) -> tuple[Fact, ...]:
    """The best, of those that say nearly the same the latest."""
    ranked = sorted(weighed, key=lambda each: (-each[0].worth * each[1], each[0].text))
    facts: list[tuple[_Told, float]] = []
    for told, heavy in ranked:
        twin = next((place for place, (other, _) in enumerate(facts) if _alike(told.words, other.words)), None)
        if twin is None:
            if len(facts) < most:
                facts.append((told, heavy))
        elif _time(told) > _time(facts[twin][0]):
            facts[twin] = (told, heavy)
    return tuple(Fact(event_id=told.event, text=told.text, at=told.at, weight=heavy) for told, heavy in facts)


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= ALIKE * len(one | other)


def _time(told: _Told) -> float:
    return told.at.timestamp() if told.at is not None else float("-inf")

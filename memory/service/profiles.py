"""
Who speaks in a tree, and what they are about (H-MEM, section 3.1: an episode keeps the user's profile beside its text and time).

The paper's model is given the profile together with the memories that were found. Here it is kept by speaker, made of what they
said: key phrases, the statements that they make of themselves, and when they spoke. A profile is made when it is first asked for,
of the whole tree, and follows the change log from then on; it lives in the process, and in the store only in the turns that it is
made of, so that nothing that is forgotten there outlives its next use.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
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
SPEAKERS_MAX = 1_000
"""Of a tree; those who come later have no profile."""
FACTS_KEPT = 400
"""Of a speaker; of more the best are kept."""
FACTS_MAX = 100
TEXTS_PER_CALL = 200
LOG_PER_READ = 500
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
    unread: list[str] = field(default_factory=list)
    """Texts that they do not stand for yet."""


@dataclass(slots=True)
class _Kept:
    """A tree's speakers, as of a commit."""

    seq: int
    losses: int
    speakers: dict[str, _Known] = field(default_factory=dict)
    latest: float = float("-inf")


class Profiles:
    """
    Keeps profiles.

    Args:
        store: the trees.
        keywords: finds key phrases.
        statements: finds facts.
    """

    def __init__(self, *, store: TreeStore, keywords: KeywordExtractor, statements: StatementFinder) -> None:
        self._store = store
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
            await self._read(known)
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

    async def _fresh(self, info: TreeInfo) -> _Kept:
        """The tree's speakers, as of its last commit."""
        losses = self._store.losses(info.id)
        kept = self._kept.pop(info.id, None)
        if kept is None or kept.losses != losses or not await self._follow(info, kept):
            kept = await self._made(info, losses)
        self._kept[info.id] = kept
        if len(self._kept) > TREES_MAX:
            self._kept.popitem(last=False)
        return kept

    async def _made(self, info: TreeInfo, losses: int) -> _Kept:
        kept = _Kept(seq=info.seq, losses=losses)
        async for node in self._store.all_nodes(info.id):
            if node.mark >> MARK_BITS <= info.seq:
                self._add(kept, node)
        return kept

    async def _follow(self, info: TreeInfo, kept: _Kept) -> bool:
        """Bring it up to date; False when that cannot be done by adding."""
        while kept.seq < info.seq:
            entries = await self._store.changes(info.id, kept.seq, limit=LOG_PER_READ)
            if not entries or any(not isinstance(step, _KNOWN) for entry in entries for step in entry.steps):
                return False
            await self._apply(info.id, kept, entries)
        return True

    async def _apply(self, tree: TreeId, kept: _Kept, entries: Sequence[LogEntry]) -> None:
        steps = [step for entry in entries for step in entry.steps]
        leaves = [step.id for step in steps if isinstance(step, Create) and step.kind is NodeKind.LEAF]
        nodes = await self._store.nodes(tree, leaves)
        for leaf in leaves:
            if leaf in nodes:
                self._add(kept, nodes[leaf])
        changed: dict[NodeId, dict[str, str | float]] = {}
        for step in steps:
            if isinstance(step, Annotate):
                changed.setdefault(step.node, {}).update(step.attributes)
        if changed:
            for known in kept.speakers.values():
                for each in known.told:
                    if each.leaf in changed:
                        each.attributes = {**each.attributes, **changed[each.leaf]}
        kept.seq = entries[-1].seq

    def _add(self, kept: _Kept, node: Node) -> None:
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
        known.unread.append(node.text)
        known.told += [told for told in self._told(node, item) if told.words]
        if len(known.told) > 2 * FACTS_KEPT:
            known.told = sorted(known.told, key=lambda each: -each.worth)[:FACTS_KEPT]

    def _told(self, node: Node, item: Item) -> Iterable[_Told]:
        for each in self._statements.statements(node.text):
            words = frozenset(each.text.casefold().split())
            yield _Told(node.id, item.event_id, each.text, words, each.worth, item.at, node.attributes)

    async def _read(self, known: _Known) -> None:
        """Have the phrases stand for everything that was said."""
        while known.unread:
            some = known.unread[:TEXTS_PER_CALL]
            found = await self._keywords.keywords(some, existing=known.phrases, covered=known.covered)
            known.phrases = found.phrases
            known.covered += len(some)
            del known.unread[: len(some)]


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

"""What an update changes, and writing it."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memory.adapters.redis.link import Link
from memory.adapters.redis.search.documents import Document, Held, document, held_from
from memory.adapters.redis.search.keys import SearchKeys
from memory.adapters.redis.search.packing import packed
from memory.adapters.redis.search.standing import Standing
from memory.model import NodeId, TreeId
from memory.ports.index import IndexEntry


class Writer:
    """
    Writes nodes.

    Args:
        link: to Redis.
        keys: all keys.
        tokenize: a text's terms.
        nodes_max: that one script takes over.
    """

    def __init__(self, link: Link, keys: SearchKeys, *, tokenize: Callable[[str], list[str]], nodes_max: int) -> None:
        self._link = link
        self._keys = keys
        self._tokenize = tokenize
        self._nodes_max = nodes_max

    async def write(
        self, tree: TreeId, standing: Standing, *, seq: int, upserts: Sequence[IndexEntry], removes: Sequence[NodeId], stamp: str
    ) -> bool:
        """Take nodes over; False when another process was faster."""
        made = {entry.node: entry for entry in upserts}
        gone = [node for node in dict.fromkeys(removes) if node not in made]
        nodes = [*gone, *made]
        writes = int(standing.writes)
        starts = range(0, len(nodes), self._nodes_max) or (0,)
        for start in starts:
            part = nodes[start : start + self._nodes_max]
            held = await self._held(standing, part)
            documents = [
                document(made[node], standing.generation, self._tokenize(made[node].text)) for node in part if node in made
            ]
            end = (str(seq), stamp) if start == starts[-1] else ("", "")
            if not await self._send(tree, standing, writes, end, change(held, documents)):
                return False
            writes += 1
        return True

    async def _held(self, standing: Standing, nodes: Sequence[NodeId]) -> dict[str, Held]:
        """What the index holds of the nodes now."""
        if not nodes:
            return {}
        start = standing.documents(self._keys)
        rows = await self._link.commands(start, [("HMGET", start + node, "words", "info", "line", "place") for node in nodes])
        found = {node: held_from(row, standing.generation) for node, row in zip(nodes, rows, strict=True)}
        return {node: held for node, held in found.items() if held is not None}

    async def _send(self, tree: TreeId, standing: Standing, writes: int, end: tuple[str, str], changed: Mapping[str, Any]) -> bool:
        keys, generation = self._keys, standing.generation
        done = await self._link.script(
            "search_write",
            [keys.standing(tree)],
            generation,
            writes,
            standing.documents(keys),
            keys.lines(generation),
            keys.terms(generation),
            keys.speakers(generation),
            *end,
            packed(changed),
            secrets.token_hex(12),
        )
        return bool(done)


def change(held: Mapping[str, Held], documents: Sequence[Document]) -> dict[str, Any]:
    """
    What the script is to do.

    Args:
        held: what the index holds of the nodes that are written or removed; all of it goes.
        documents: what comes.
    """
    terms: Counter[bytes] = Counter()
    speakers: Counter[bytes] = Counter()
    texts = length = 0
    signed = [(1, document.held) for document in documents] + [(-1, one) for one in held.values()]
    for sign, one in signed:
        for term in one.words:
            terms[term] += sign
        if one.speaker is not None:
            speakers[one.speaker.encode("utf-8", "surrogatepass")] += sign
        texts += sign * bool(one.words)
        length += sign * one.words.total()
    return {
        "removes": [(node, one.line, one.place) for node, one in held.items()],
        "upserts": [(one.node, one.held.line, one.held.place, one.fields) for one in documents],
        "terms": _pairs(terms),
        "speakers": _pairs(speakers),
        "nodes": len(documents) - len(held),
        "texts": texts,
        "length": length,
    }


def _pairs(differences: Counter[bytes]) -> list[bytes | int]:
    return [each for name, difference in differences.items() if difference for each in (name, difference)]

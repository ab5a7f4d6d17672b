"""What many trees' last commits made, rewrote and removed, in two rounds for all of them: the commits, then the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory.adapters.redis.codec import decode_node, encode
from memory.adapters.redis.history import History
from memory.adapters.redis.link import Link
from memory.adapters.redis.log_codec import decode_time, decode_touched
from memory.errors import TreeNotFoundError
from memory.model import Node, NodeId, TreeId
from memory.ports.store import News

BYTES_PER_READ = 1 << 20
"""Of commits of one tree, after which no more are added."""
IDS_PER_READ = 500
"""Nodes that one script looks up at most, contents included."""


@dataclass(frozen=True, slots=True)
class _Commits:
    since: datetime | None
    seq: int
    at: datetime | None
    nodes: Sequence[NodeId]
    removed: Sequence[NodeId]
    """Some of the nodes; their ids may be in use again."""


async def news(link: Link, history: History, after: Mapping[TreeId, int], *, limit: int) -> dict[TreeId, News]:
    """`TreeStore.news`."""
    commits = await _commits(link, history, after, limit)
    nodes = await _nodes(link, {tree: found.nodes for tree, found in commits.items() if found.nodes})
    told = {}
    for tree, found in commits.items():
        there = nodes.get(tree, ())
        known = {node.id for node in there} if found.removed else ()
        gone = tuple(node for node in found.removed if node not in known)
        told[tree] = News(since=found.since, seq=found.seq, at=found.at, nodes=tuple(there), gone=gone)
    return told


async def _commits(link: Link, history: History, after: Mapping[TreeId, int], limit: int) -> dict[TreeId, _Commits]:
    calls = []
    for tree, covered in after.items():
        keys = link.keys(tree)
        calls.append(((keys.state, keys.log, keys.bodies), (covered, limit, BYTES_PER_READ, *history.seen(tree))))
    found: dict[TreeId, _Commits] = {}
    for (tree, covered), answer in zip(after.items(), await link.scripts("news", calls), strict=True):
        if isinstance(answer, TreeNotFoundError):
            continue
        if isinstance(answer, BaseException):
            raise answer
        if not answer:
            history.lost(tree)
            continue
        last, name, before, *entries = answer
        history.add(tree, int(last), name)
        since = None if before is None else decode_time(before)
        made, removed = dict[NodeId, None](), dict[NodeId, None]()
        at = None
        for _, names, body in entries:
            at, written, gone = decode_touched(names, body)
            made.update(dict.fromkeys((*written, *gone)))
            removed.update(dict.fromkeys(gone))
        seq = int(entries[-1][0]) if entries else min(covered, int(last))
        found[tree] = _Commits(since, seq, at, list(made), list(removed))
    return found


async def _nodes(link: Link, wanted: Mapping[TreeId, Sequence[NodeId]]) -> dict[TreeId, list[Node]]:
    parts: list[tuple[TreeId, Sequence[NodeId]]] = [
        (tree, ids[start : start + IDS_PER_READ]) for tree, ids in wanted.items() for start in range(0, len(ids), IDS_PER_READ)
    ]
    calls: list[tuple[Sequence[str], Sequence[Any]]] = []
    for tree, ids in parts:
        keys = link.keys(tree)
        calls.append(((keys.state, keys.nodes, keys.content), (encode(ids), "b")))
    found: dict[TreeId, list[Node]] = {}
    for (tree, ids), answer in zip(parts, await link.scripts("nodes", calls), strict=True):
        if isinstance(answer, TreeNotFoundError):
            continue  # it went between the two rounds
        if isinstance(answer, BaseException):
            raise answer
        dimension, *flat = answer
        found.setdefault(tree, []).extend(
            decode_node(node, flat[2 * at], flat[2 * at + 1], dimension=dimension, vector=True)
            for at, node in enumerate(ids)
            if flat[2 * at] is not None
        )
    return found

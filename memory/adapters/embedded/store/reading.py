"""The store's reads, each inside a transaction that its caller began: all of one commit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.adapters.codec import KINDS, STORED, decode_item, decode_vector
from memory.adapters.embedded.store import codec
from memory.adapters.embedded.store.schema import KEY_BITS
from memory.errors import StoreDamagedError, TreeNotFoundError
from memory.model import EmbeddingModel, EventId, Mark, Node, NodeId, TreeId, TreeInfo
from memory.ports.store import Contribution, Cost, DirtyNode, Link, LogEntry, Skeleton, TreeStats

NODE = """
SELECT node.key, node.id, above.id, node.kind, node.depth, node.mark, node.version, node.routing, node.descendants, node.pending,
    node.cohesion, node.provisional, content.text, content.item, attribute.value, {vector}
FROM node
LEFT JOIN node AS above ON above.key = node.parent
LEFT JOIN content ON content.key = node.key
LEFT JOIN attribute ON attribute.key = node.key
{join}
WHERE {where}
"""
VECTOR_JOIN = "LEFT JOIN vector ON vector.key = node.key"


def node_query(where: str, *, vectors: bool) -> str:
    """A query for whole nodes."""
    return NODE.format(vector="vector.value" if vectors else "NULL", join=VECTOR_JOIN if vectors else "", where=where)


def tree_number(connection: sqlite3.Connection, tree: TreeId) -> int:
    """
    The tree's number in row keys.

    Raises:
        TreeNotFoundError: there is no such tree.
    """
    found = connection.execute("SELECT number FROM tree WHERE id = ?", (tree,)).fetchone()
    if found is None:
        raise TreeNotFoundError(f"there is no tree {tree!r} in this store")
    return int(found[0])


def key_range(number: int) -> tuple[int, int]:
    """First and last key of a tree's rows."""
    return number << KEY_BITS, (number + 1 << KEY_BITS) - 1


TREE = "SELECT id, structure, model, dimension, unrelated_cosine, parameters, created_at, seq, tally FROM tree"


def tree_info(connection: sqlite3.Connection, tree: TreeId) -> TreeInfo:
    """
    A tree's identity and state.

    Raises:
        TreeNotFoundError: there is no such tree.
    """
    found = connection.execute(f"{TREE} WHERE id = ?", (tree,)).fetchone()
    if found is None:
        raise TreeNotFoundError(f"there is no tree {tree!r} in this store")
    return _tree_info(found)


def tree_infos(connection: sqlite3.Connection) -> list[TreeInfo]:
    """All trees, by name."""
    return [_tree_info(found) for found in connection.execute(f"{TREE} ORDER BY id")]


def _tree_info(values: Sequence[Any]) -> TreeInfo:
    name, structure, model, dimension, unrelated, parameters, created_at, seq, data = values
    counts = codec.decode_tally(data)
    return TreeInfo(
        id=TreeId(name),
        structure=structure,
        model=EmbeddingModel(name=model, dimension=dimension, unrelated_cosine=unrelated),
        parameters=codec.decode_parameters(parameters),
        created_at=datetime.fromisoformat(created_at),
        seq=seq,
        floor=counts.floor,
        redacted=counts.redacted,
    )


def tally(connection: sqlite3.Connection, number: int) -> tuple[int, codec.Tally]:
    """The tree's sequence number and counters."""
    seq, data = connection.execute("SELECT seq, tally FROM tree WHERE number = ?", (number,)).fetchone()
    return seq, codec.decode_tally(data)


def node(values: Sequence[Any], leaves: int) -> Node:
    """
    A node of a row of `node_query`.

    Args:
        values: the row.
        leaves: leaves of the whole tree: the root's descendants, which no step counts.
    """
    _, name, parent, kind, depth, at, version, routing, descendants, pending, cohesion, provisional, text, item, *rest = values
    attributes, vector = rest
    try:
        kind, vector = KINDS[kind], None if vector is None else decode_vector(vector)
    except (IndexError, ValueError) as error:
        raise StoreDamagedError(
            f"node {name!r}: its kind or vector cannot be read; restore the store from a copy or import it again"
        ) from error
    return Node(
        id=NodeId(name),
        parent=parent,
        kind=kind,
        depth=depth,
        mark=Mark(at),
        version=version,
        routing=routing,
        text=text or "",
        vector=vector,
        cohesion=cohesion,
        descendants=descendants if parent is not None else leaves,
        pending=pending,
        provisional=bool(provisional),
        item=None if item is None else decode_item(item, text),
        attributes={} if attributes is None else codec.decode_attributes(attributes),
    )


def nodes(connection: sqlite3.Connection, tree: TreeId, ids: Sequence[NodeId], *, vectors: bool) -> dict[NodeId, Node]:
    """Those of the nodes that exist."""
    number = tree_number(connection, tree)
    leaves = tally(connection, number)[1].leaves
    found: dict[NodeId, Node] = {}
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        query = node_query(f"node.tree = ? AND node.id IN ({','.join('?' * len(some))})", vectors=vectors)
        for values in connection.execute(query, (number, *some)):
            found[values[1]] = node(values, leaves)
    return found


LINEAGE = """
WITH RECURSIVE lineage(key, parent) AS (
  SELECT key, parent FROM node WHERE tree = ? AND id IN ({ids}) AND parent IS NOT NULL
  UNION
  SELECT node.key, node.parent FROM lineage JOIN node ON node.key = lineage.parent WHERE node.parent IS NOT NULL
)
"""
"""Keys of nodes and of all above them, the root left out."""


def lineage(connection: sqlite3.Connection, tree: TreeId, ids: Sequence[NodeId]) -> dict[NodeId, Node]:
    """Those of the nodes that exist and all above them, the root left out."""
    number = tree_number(connection, tree)
    found: dict[NodeId, Node] = {}
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        keys = LINEAGE.format(ids=",".join("?" * len(some)))
        query = keys + node_query("node.key IN (SELECT key FROM lineage)", vectors=False)
        for values in connection.execute(query, (number, *some)):
            found[values[1]] = node(values, 0)
    return found


BELOW = """
SELECT node.key, content.text, content.item FROM node LEFT JOIN content ON content.key = node.key
WHERE node.parent = ? ORDER BY node.mark LIMIT ?
"""


def events_below(
    connection: sqlite3.Connection, tree: TreeId, ids: Sequence[NodeId], *, limit: int
) -> dict[NodeId, tuple[EventId, ...]]:
    """Events below each of the nodes, breadth first."""
    number = tree_number(connection, tree)
    below: dict[NodeId, tuple[EventId, ...]] = {}
    for name in ids:
        events: dict[EventId, None] = {}
        level = [key for (key,) in connection.execute("SELECT key FROM node WHERE tree = ? AND id = ?", (number, name))]
        while level and len(events) < limit:
            deeper: list[int] = []
            for parent in level:
                for key, text, item in connection.execute(BELOW, (parent, limit - len(events))).fetchall():
                    if item is None:
                        deeper.append(key)
                    else:
                        events[decode_item(item, text).event_id] = None
                if len(events) >= limit:
                    break
            level = deeper
        below[name] = tuple(events)
    return below


def children(connection: sqlite3.Connection, tree: TreeId, parent: NodeId, *, limit: int, after: Mark) -> list[Node]:
    """Children in order of creation."""
    number = tree_number(connection, tree)
    query = node_query(
        "node.parent = (SELECT key FROM node WHERE tree = ? AND id = ?) AND node.mark > ? ORDER BY node.mark LIMIT ?",
        vectors=False,
    )
    return [node(values, 0) for values in connection.execute(query, (number, parent, after, limit))]


def page(connection: sqlite3.Connection, number: int, after: int, *, vectors: bool, limit: int) -> tuple[list[Node], int]:
    """Nodes with keys above `after`, at most `limit`, and the last key."""
    query = node_query("node.key > ? AND node.key <= ? ORDER BY node.key LIMIT ?", vectors=vectors)
    leaves = tally(connection, number)[1].leaves if after < number << KEY_BITS else 0
    rows = connection.execute(query, (after, key_range(number)[1], limit)).fetchall()
    return [node(values, leaves) for values in rows], rows[-1][0] if rows else after


COLUMNS = """
SELECT json_group_array(key & :mask), json_group_array(id), json_group_array(parent & :mask), json_group_array(kind),
    json_group_array(depth), json_group_array(version), json_group_array(routing), json_group_array(descendants)
FROM (SELECT * FROM node WHERE key BETWEEN :first AND :last ORDER BY key)
"""
"""Columns of a whole tree in one row: a tenth of the time of fetching rows, and the interpreter is asked for only once."""

VECTORS = """
SELECT cast(group_concat(value, '') AS BLOB), count(*), max(key)
FROM (SELECT key, value FROM vector WHERE key > ? AND key <= ? ORDER BY key LIMIT ?)
"""
"""Stored vectors in a row; blobs are joined byte by byte."""

VECTORS_PAGE = 1024


def skeleton(connection: sqlite3.Connection, tree: TreeId) -> Skeleton:
    """The tree in columns."""
    number = tree_number(connection, tree)
    seq, counts = tally(connection, number)
    first, last = key_range(number)
    columns = connection.execute(COLUMNS, {"mask": last - first, "first": first, "last": last}).fetchone()
    numbers, ids, parents, kinds, *counted = map(msgspec.json.decode, columns)
    depths, versions, routings, descendants = (np.array(column, np.int64) for column in counted)
    descendants[0] = counts.leaves
    names = dict(zip(numbers, ids, strict=True))
    names[None] = None
    return Skeleton(
        seq=seq,
        ids=ids,
        parents=[names[parent] for parent in parents],
        kinds=[KINDS[kind] for kind in kinds],
        depths=depths.astype(np.int32),
        versions=versions,
        routings=routings,
        descendants=descendants,
        vectors=_all_vectors(connection, tree, number, len(ids)),
        attributes={
            NodeId(names[key - first]): codec.decode_attributes(value)
            for key, value in connection.execute("SELECT key, value FROM attribute WHERE key BETWEEN ? AND ?", (first, last))
        },
        links=links(connection, number),
    )


def links(connection: sqlite3.Connection, number: int) -> tuple[Link, ...]:
    """Edges of the association graph of the tree with that number."""
    found = connection.execute("SELECT data FROM link WHERE tree = ? ORDER BY mark", (number,))
    return tuple(codec.decode_link(data) for (data,) in found)


def _all_vectors(connection: sqlite3.Connection, tree: TreeId, number: int, count: int) -> NDArray[np.float16]:
    """(count, d) float16 in order of keys, row 0 zeros."""
    dimension = connection.execute("SELECT dimension FROM tree WHERE number = ?", (number,)).fetchone()[0]
    vectors = np.zeros((count, dimension), np.float16)
    after, last = key_range(number)
    row = 1
    while row < count:
        packed, found, after = connection.execute(VECTORS, (after, last, VECTORS_PAGE)).fetchone()
        if not found or row + found > count or len(packed) != found * dimension * STORED.itemsize:
            raise StoreDamagedError(
                f"tree {tree!r}: nodes and vectors do not match; restore the store from a copy or import the tree again"
            )
        vectors[row : row + found] = np.frombuffer(packed, STORED).reshape(found, dimension)
        row += found
    return vectors


def changes(connection: sqlite3.Connection, tree: TreeId, after: int, *, limit: int) -> list[LogEntry]:
    """Log entries, leaves' vectors filled in."""
    number = tree_number(connection, tree)
    base, last = key_range(number)
    rows = connection.execute(
        "SELECT key, entry FROM log WHERE key > ? AND key <= ? ORDER BY key LIMIT ?", (base + max(after, 0), last, limit)
    ).fetchall()
    entries = [(key - base, codec.decode_entry(data)) for key, data in rows]
    wanted = [codec.leaf_keys(entry) for _, entry in entries]
    every = [key for keys in wanted for key in keys]
    stored: dict[int, bytes] = {}
    if every:
        # Nodes are numbered in order of their commits: the leaves of a run of commits lie in one range.
        stored = dict(
            connection.execute("SELECT key, value FROM vector WHERE key BETWEEN ? AND ?", (min(every), max(every))).fetchall()
        )
    if any(key not in stored for key in every):
        _fill(connection, tree, stored, every)
    return [codec.log_entry(seq, entry, [stored[key] for key in keys]) for (seq, entry), keys in zip(entries, wanted, strict=True)]


def _fill(connection: sqlite3.Connection, tree: TreeId, stored: dict[int, bytes], wanted: Sequence[int]) -> None:
    """Zeros for the vectors of leaves that were removed."""
    info = tree_info(connection, tree)
    missing = [key for key in wanted if key not in stored]
    if missing and not info.floor:
        raise StoreDamagedError(
            f"tree {tree!r}: vectors of leaves that its change log makes are not there ({len(missing):,} of {len(wanted):,}); "
            "restore the store from a copy or import the tree again"
        )
    zeros = bytes(info.model.dimension * STORED.itemsize)
    stored.update(dict.fromkeys(missing, zeros))


def contributions(connection: sqlite3.Connection, tree: TreeId, name: NodeId, *, limit: int) -> list[Contribution]:
    """Contributions of a node, oldest first."""
    number = tree_number(connection, tree)
    found = connection.execute("SELECT key, pending, tail FROM node WHERE tree = ? AND id = ?", (number, name)).fetchone()
    if found is None:
        return []
    key, pending, tail = found
    waiting: list[tuple[int, int]] = []
    for (data,) in connection.execute("SELECT data FROM contribution WHERE node = ? ORDER BY first", (key,)):
        waiting.extend(codec.unpack_contributions(data))
        if len(waiting) >= limit:
            break
    waiting.extend(codec.unpack_contributions(tail))
    if len(waiting) < min(limit, pending):
        raise StoreDamagedError(f"node {name} of tree {tree}: {pending} contributions are counted, {len(waiting)} are kept")
    del waiting[limit:]
    base = key_range(number)[0]
    names = dict(
        connection.execute(
            "SELECT node.key, node.id FROM json_each(?) AS leaf CROSS JOIN node ON node.key = leaf.value",
            (json.dumps([base + leaf for _, leaf in waiting]),),
        ).fetchall()
    )
    return [Contribution(mark=Mark(at), leaf=names[base + leaf]) for at, leaf in waiting]


def dirty(connection: sqlite3.Connection, tree: TreeId, *, limit: int) -> list[DirtyNode]:
    """Nodes with contributions, deepest first, then oldest first."""
    number = tree_number(connection, tree)
    found = connection.execute(
        "SELECT id, depth, pending, oldest FROM node INDEXED BY node_dirty WHERE tree = ? AND oldest IS NOT NULL"
        " ORDER BY depth DESC, oldest LIMIT ?",
        (number, limit),
    )
    return [DirtyNode(node=name, depth=depth, pending=pending, oldest=oldest) for name, depth, pending, oldest in found]


def events(connection: sqlite3.Connection, tree: TreeId) -> dict[EventId, tuple[NodeId, ...]]:
    """Every event with its leaves."""
    number = tree_number(connection, tree)
    found = connection.execute("SELECT id, leaves FROM event WHERE tree = ? ORDER BY seq", (number,))
    return {event: tuple(map(NodeId, codec.decode_names(leaves))) for event, leaves in found}


def stats(connection: sqlite3.Connection, tree: TreeId) -> TreeStats:
    """Counts; `bytes` is the file's size, shared out among the trees by their nodes."""
    number = tree_number(connection, tree)
    seq, counts = tally(connection, number)
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    page_size = connection.execute("PRAGMA page_size").fetchone()[0]
    # The first of each depth: the index has them in that order, and of all that are dirty the oldest would take reading them all.
    oldest = connection.execute(
        "SELECT min((SELECT oldest FROM node INDEXED BY node_dirty WHERE tree = ?1 AND depth = level.value AND oldest IS NOT NULL"
        " ORDER BY oldest LIMIT 1)) FROM json_each(?2) AS level",
        (number, json.dumps(list(counts.summary_depths))),
    ).fetchone()[0]
    mine, everyone = connection.execute(
        "SELECT sum(numbers) FILTER (WHERE number = ?), sum(numbers) FROM tree", (number,)
    ).fetchone()
    depths = {
        depth: counts.summary_depths.get(depth, 0) + counts.leaf_depths.get(depth, 0)
        for depth in sorted({*counts.summary_depths, *counts.leaf_depths})
    }
    return TreeStats(
        seq=seq,
        nodes=1 + counts.summaries + counts.leaves,
        leaves=counts.leaves,
        summaries=counts.summaries,
        events=counts.events,
        pending=counts.pending,
        dirty=counts.dirty,
        depths=depths,
        leaf_depths=dict(sorted(counts.leaf_depths.items())),
        rewrites=counts.rewrites,
        cost=Cost(calls=counts.calls, tokens_in=counts.tokens_in, tokens_out=counts.tokens_out),
        bytes=pages * page_size * mine // everyone,
        oldest=oldest,
    )

"""The store's writes, each inside a transaction that its caller began."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from memory.adapters.codec import encode_item, encode_vectors
from memory.adapters.embedded.store import codec, removing
from memory.adapters.embedded.store.cache import RowCache
from memory.adapters.embedded.store.folding import Folded, Folding, Misfit, named
from memory.adapters.embedded.store.reading import tree_info
from memory.adapters.embedded.store.rows import Row, by_size
from memory.adapters.embedded.store.schema import KEY_BITS
from memory.errors import LeaseLostError, TreeNotFoundError
from memory.model import ROOT, EventId, NodeId, TreeInfo
from memory.ports.store import NO_DIGEST, Applied, ChangeSet, Create, Receipt, Rewrite, Seen, Stale

COLUMNS = "key, tree, id, parent, kind, depth, mark, version, routing, descendants, pending, oldest, cohesion, provisional, tail"
INSERT_ROOT = f"INSERT INTO node ({COLUMNS}) VALUES (?, ?, ?, NULL, 0, 0, 0, 1, 0, 0, 0, NULL, 1.0, 0, x'')"  # noqa: S608
INSERT_NODE = f"INSERT INTO node ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
NAMES_MAX, NAMES_STEP = 512, 16
"""Values in one `IN (…)` at most, and what their number is a multiple of."""


class TreeRow(NamedTuple):
    """What a commit needs of the tree's row."""

    number: int
    dimension: int
    seq: int
    numbers: int
    tally: bytes
    stamp: int


def create_tree(connection: sqlite3.Connection, info: TreeInfo) -> TreeInfo:
    """Make the tree and its root, unless it is there."""
    inserted = connection.execute(
        "INSERT INTO tree (id, structure, model, dimension, unrelated_cosine, parameters, created_at, seq, numbers, tally, stamp)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 0, 1, ?, ?) ON CONFLICT (id) DO NOTHING",
        (
            info.id,
            info.structure,
            info.model.name,
            info.model.dimension,
            info.model.unrelated_cosine,
            codec.encode(dict(info.parameters)),
            info.created_at.isoformat(),
            codec.encode(codec.Tally()),
            draw(),
        ),
    )
    if inserted.rowcount:
        number = inserted.lastrowid
        assert number is not None
        connection.execute(
            INSERT_ROOT,
            (number << KEY_BITS, number, ROOT),
        )
    return tree_info(connection, info.id)


def draw() -> int:
    """A stamp: 63 random bits."""
    return int.from_bytes(os.urandom(8)) >> 1


def apply(
    connection: sqlite3.Connection,
    changes: ChangeSet,
    vectors: Callable[[int], list[bytes]],
    *,
    held: Callable[[], bool],
    cache: RowCache,
) -> Applied | Seen | Stale:
    """
    Compare and apply (see the port). Writes nothing unless it answers `Applied`.

    Args:
        connection: in a write transaction.
        changes: the set.
        vectors: the stored vectors of its steps, given the tree's dimension.
        held: whether the lease that was given, if any, is still valid.
        cache: of the thread that writes.
    """
    values = connection.execute(
        "SELECT number, dimension, seq, numbers, tally, stamp FROM tree WHERE id = ?", (changes.tree,)
    ).fetchone()
    if values is None:
        raise TreeNotFoundError(f"there is no tree {changes.tree!r} in this store")
    tree = TreeRow._make(values)
    packed = vectors(tree.dimension)
    if not held():
        raise LeaseLostError(f"the lease on {changes.tree} has ended; nothing was written")
    found = receipts(connection, tree.number, [*(event.id for event in changes.events), *changes.forgets])
    forgets = set(changes.forgets)
    seen = {event: receipt for event, receipt in found.items() if receipt.forgotten or event not in forgets}
    if seen:
        return Seen(receipts=seen)
    folding = Folding(
        changes,
        _rows(connection, tree, named(changes), cache),
        tree=tree.number,
        base=tree.number << KEY_BITS,
        seq=tree.seq + 1,
        numbers=tree.numbers,
        tally=codec.decode_tally(tree.tally),
        waiting=lambda key, through: _waiting(connection, key, through),
        outside=lambda key: _outside(connection, key),
        children=lambda key: _children(connection, key),
    )
    try:
        folded = folding.fold()
        folding.require_gone(leaf for receipt in found.values() for leaf in receipt.leaves)
        folded.tally.events -= len(found)
    except Misfit as misfit:
        return Stale(nodes=misfit.nodes, seq=tree.seq)
    stamp = draw()
    _write(connection, changes, folded, packed, tree.number, stamp)
    cache.keep(tree.number, tree.stamp, stamp, folded.named)
    return Applied(seq=folded.seq)


def _rows(connection: sqlite3.Connection, tree: TreeRow, names: Sequence[NodeId], cache: RowCache) -> dict[NodeId, Row]:
    rows = cache.take(tree.number, tree.stamp, names)
    rows.update(rows_of(connection, tree.number, [name for name in names if name not in rows]))
    return rows


def rows_of(connection: sqlite3.Connection, number: int, names: Sequence[NodeId]) -> dict[NodeId, Row]:
    """Rows of those of the nodes that exist."""
    rows: dict[NodeId, Row] = {}
    for some in _chunks(names):
        marks = ",".join("?" * len(some))
        query = f"SELECT {COLUMNS} FROM node WHERE tree = ? AND id IN ({marks})"  # noqa: S608  # only question marks
        for values in connection.execute(query, (number, *some)):
            rows[values[2]] = Row(*values)
    return rows


def receipts(connection: sqlite3.Connection, number: int, events: Sequence[EventId]) -> dict[EventId, Receipt]:
    """Receipts of those of the events that were applied to the tree with that number."""
    found: dict[EventId, Receipt] = {}
    for some in _chunks(events):
        marks = ",".join("?" * len(some))
        query = f"SELECT id, seq, digest, leaves FROM event WHERE tree = ? AND id IN ({marks})"  # noqa: S608
        for event, seq, digest, leaves in connection.execute(query, (number, *some)):
            nodes = tuple(map(NodeId, codec.decode_names(leaves)))
            # A forgotten event keeps no digest, and any other has one of 16 bytes.
            found[event] = Receipt(event_id=event, seq=seq, digest=digest or NO_DIGEST, leaves=nodes, forgotten=not digest)
    return found


def _chunks(names: Sequence[str]) -> Iterator[list[str | None]]:
    """Names for one `IN (…)`, filled up with NULL: a statement of another length would have to be understood anew."""
    rest = iter(names)
    while some := list[str | None](islice(rest, NAMES_MAX)):
        yield some + [None] * (-len(some) % NAMES_STEP)


def _waiting(connection: sqlite3.Connection, key: int, through: int) -> tuple[int, int | None]:
    """How many contributions would be left in the runs of a node trimmed up to `through`, and the oldest of them."""
    count, oldest = connection.execute(
        "SELECT coalesce(sum(size), 0), min(first) FROM contribution WHERE node = ? AND first > ?", (key, through)
    ).fetchone()
    for _, left in _straddling(connection, key, through):
        count += len(left)
        oldest = left[0][0]
    return count, oldest


def _straddling(connection: sqlite3.Connection, key: int, through: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """The run, if any, that `through` divides: its number and what is left of it."""
    found = connection.execute(
        "SELECT number, data FROM contribution WHERE node = ? AND first <= ? AND last > ?", (key, through, through)
    ).fetchall()
    return [(number, [(at, leaf) for at, leaf in codec.unpack_contributions(data) if at > through]) for number, data in found]


def _outside(connection: sqlite3.Connection, key: int) -> list[tuple[int, int]]:
    """Contributions in the runs of a node, oldest first."""
    runs = connection.execute("SELECT data FROM contribution WHERE node = ? ORDER BY first", (key,))
    return [one for (data,) in runs for one in codec.unpack_contributions(data)]


def _children(connection: sqlite3.Connection, key: int) -> set[int]:
    return {child for (child,) in connection.execute("SELECT key FROM node WHERE parent = ?", (key,))}


def _trim(connection: sqlite3.Connection, key: int, through: int) -> None:
    for number, left in _straddling(connection, key, through):
        connection.execute(
            "UPDATE contribution SET first = ?, size = ?, data = ? WHERE number = ?",
            (left[0][0], len(left), codec.pack_contributions(left), number),
        )
    connection.execute("DELETE FROM contribution WHERE node = ? AND last <= ?", (key, through))


def _write(
    connection: sqlite3.Connection, changes: ChangeSet, folded: Folded, packed: Sequence[bytes], number: int, stamp: int
) -> None:
    for row in folded.rows:
        if row.over is not None:
            connection.execute(
                "INSERT INTO contribution (node, first, last, size, data)"
                " SELECT ?, first, last, size, data FROM contribution WHERE node = ? ORDER BY first",
                (row.key, row.over),
            )
    for row in folded.rows:
        if row.through and (not row.new or row.over is not None) and row.runs is None:
            _trim(connection, row.key, row.through)
    rows = by_size(folded.rows)
    if rows["gone"]:
        removing.remove(connection, number, rows["gone"])
        removing.replace_runs(connection, (row for row in folded.rows if not row.gone))
    removing.bury(connection, number, folded.seq, changes.forgets)
    _insert(connection, rows["new"], packed)
    _update(connection, rows["counted"], rows["placed"], packed)
    connection.executemany(
        "INSERT INTO contribution (node, first, last, size, data) VALUES (?, ?, ?, ?, ?)",
        ((row.key, *row.run) for row in folded.rows if row.run is not None and not row.gone),
    )
    connection.executemany(
        "INSERT INTO event (tree, id, seq, digest, leaves) VALUES (?, ?, ?, ?, ?)",
        ((number, event.id, folded.seq, event.digest, codec.encode(event.leaves)) for event in changes.events),
    )
    for row in folded.rows:
        if row.attributes is not None and not row.gone:
            _annotate(connection, row)
    connection.executemany(
        "INSERT INTO link (tree, mark, data) VALUES (?, ?, ?)",
        ((number, at, codec.encode_link(link)) for at, link in folded.links),
    )
    entry = codec.encode_entry(changes, packed, first=folded.first)
    connection.execute("INSERT INTO log (key, entry) VALUES (?, ?)", (number << KEY_BITS | folded.seq, entry))
    connection.execute(
        "UPDATE tree SET seq = ?, numbers = ?, tally = ?, stamp = ? WHERE number = ?",
        (folded.seq, folded.numbers, codec.encode(folded.tally), stamp, number),
    )


def _annotate(connection: sqlite3.Connection, row: Row) -> None:
    found = None if row.new else connection.execute("SELECT value FROM attribute WHERE key = ?", (row.key,)).fetchone()
    before = {} if found is None else codec.decode_attributes(found[0])
    value = codec.encode({**before, **(row.attributes or {})})
    connection.execute(
        "INSERT INTO attribute (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (row.key, value)
    )


def _insert(connection: sqlite3.Connection, new: Sequence[Row], packed: Sequence[bytes]) -> None:
    many = connection.executemany
    many(
        INSERT_NODE,
        (
            (
                row.key,
                row.tree,
                row.id,
                row.parent,
                row.kind,
                row.depth,
                row.mark,
                row.version,
                row.routing,
                row.descendants,
                row.pending,
                row.oldest,
                row.cohesion,
                row.provisional,
                row.tail,
            )
            for row in new
        ),
    )
    many("INSERT INTO vector (key, value) VALUES (?, ?)", ((row.key, packed[row.vector]) for row in new))
    many(
        "INSERT INTO content (key, text, item) VALUES (?, ?, ?)",
        ((row.key, row.text, None if row.item is None else encode_item(row.item, row.text or "")) for row in new),
    )


def _update(connection: sqlite3.Connection, counted: Sequence[Row], placed: Sequence[Row], packed: Sequence[bytes]) -> None:
    many = connection.executemany
    many(
        "UPDATE node SET version = ?, routing = ?, descendants = ?, pending = ?, tail = ? WHERE key = ?",
        ((row.version, row.routing, row.descendants, row.pending, row.tail, row.key) for row in counted),
    )
    many(
        "UPDATE node SET version = ?, routing = ?, descendants = ?, pending = ?, parent = ?, depth = ?, oldest = ?, cohesion = ?,"
        " provisional = ?, tail = ? WHERE key = ?",
        (
            (
                row.version,
                row.routing,
                row.descendants,
                row.pending,
                row.parent,
                row.depth,
                row.oldest,
                row.cohesion,
                row.provisional,
                row.tail,
                row.key,
            )
            for row in placed
        ),
    )
    rewritten = [row for row in placed if row.text is not None]
    many("UPDATE vector SET value = ? WHERE key = ?", ((packed[row.vector], row.key) for row in rewritten))
    many("UPDATE content SET text = ? WHERE key = ?", ((row.text, row.key) for row in rewritten))


def vectors_of(changes: ChangeSet) -> Callable[[int], list[bytes]]:
    """The stored vectors of the steps of a set, in order, given the dimension."""
    given = [step.vector for step in changes.steps if isinstance(step, Create | Rewrite)]
    return lambda dimension: encode_vectors(given, dimension)

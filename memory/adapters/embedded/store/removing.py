"""What forgetting writes: rows that go, events that become tombstones, a change log that no longer says what they held."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from memory.adapters.embedded.store import codec
from memory.adapters.embedded.store.rows import Row
from memory.adapters.embedded.store.schema import KEY_BITS
from memory.model import EventId, NodeId

ENTRIES_PER_PIECE = 256
"""Log entries that one transaction looks through: others write in between."""
TABLES = ("vector", "content", "attribute")


def remove(connection: sqlite3.Connection, number: int, gone: Sequence[Row]) -> None:
    """Everything that is kept of these nodes of the tree with that number."""
    keys = [(row.key,) for row in gone]
    connection.executemany("DELETE FROM node WHERE key = ?", keys)
    for table in TABLES:
        connection.executemany(f"DELETE FROM {table} WHERE key = ?", keys)  # noqa: S608  # one of three names
    connection.executemany("DELETE FROM contribution WHERE node = ?", keys)
    names = {row.id for row in gone}
    # Edges lie as they were made; the trees that have any are few, and one that forgets goes through them.
    for at, data in connection.execute("SELECT mark, data FROM link WHERE tree = ?", (number,)).fetchall():
        link = codec.decode_link(data)
        left = codec.without(link, names)
        if left is None:
            connection.execute("DELETE FROM link WHERE tree = ? AND mark = ?", (number, at))
        elif left != link:
            connection.execute("UPDATE link SET data = ? WHERE tree = ? AND mark = ?", (codec.encode_link(left), number, at))


def replace_runs(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Contributions outside rows from which some were taken."""
    for row in rows:
        if row.runs is None:
            continue
        connection.execute("DELETE FROM contribution WHERE node = ?", (row.key,))
        if row.runs:
            connection.execute(
                "INSERT INTO contribution (node, first, last, size, data) VALUES (?, ?, ?, ?, ?)",
                (row.key, row.runs[0][0], row.runs[-1][0], len(row.runs), codec.pack_contributions(row.runs)),
            )


def bury(connection: sqlite3.Connection, number: int, seq: int, events: Sequence[EventId]) -> None:
    """Remember of these events only that they were forgotten: without a digest, which no other event is."""
    connection.executemany(
        "INSERT INTO event (tree, id, seq, digest, leaves) VALUES (?1, ?2, ?3, x'', ?4)"
        " ON CONFLICT (tree, id) DO UPDATE SET seq = ?3, digest = x'', leaves = ?4",
        ((number, event, seq, codec.encode(())) for event in events),
    )


def redact(connection: sqlite3.Connection, number: int, nodes: Mapping[NodeId, int], after: int) -> int | None:
    """
    Redact the next log entries, inside a write transaction.

    Args:
        connection: of the file.
        number: the tree's.
        nodes: each with the last commit in which it is redacted.
        after: the commit after which to go on.

    Returns:
        The commit after which to go on the next time; None at the end.
    """
    base = number << KEY_BITS
    rows = connection.execute(
        "SELECT key, entry FROM log WHERE key > ? AND key <= ? ORDER BY key LIMIT ?",
        (base + after, base + max(nodes.values(), default=0), ENTRIES_PER_PIECE),
    ).fetchall()
    least = min(nodes.values(), default=0)
    for key, data in rows:
        wanted = nodes.keys() if key - base <= least else {node for node, through in nodes.items() if through >= key - base}
        left = codec.redacted(data, wanted)
        if left is not None:
            connection.execute("UPDATE log SET entry = ? WHERE key = ?", (left, key))
    return rows[-1][0] - base if len(rows) == ENTRIES_PER_PIECE else None


def redacted(connection: sqlite3.Connection, number: int, to: int) -> None:
    """Note that nothing that commits up to `to` removed is left in the log."""
    (data,) = connection.execute("SELECT tally FROM tree WHERE number = ?", (number,)).fetchone()
    tally = codec.decode_tally(data)
    if tally.redacted < to:
        tally.redacted = to
        connection.execute("UPDATE tree SET tally = ? WHERE number = ?", (codec.encode(tally), number))

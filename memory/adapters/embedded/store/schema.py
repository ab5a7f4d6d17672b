"""The store's tables, and how a file comes to have them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from memory.adapters.embedded.files import transaction
from memory.errors import StoreDamagedError, StoreVersionError

APPLICATION_ID = 0x42414E59
"""`BANY` in the file's header: tells a Banyan store from any other SQLite file."""

KEY_BITS = 32
"""A row key is `tree number << KEY_BITS | number in the tree`: rows of one tree lie together, in order of their making."""

VERSION_1 = """
CREATE TABLE tree (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    structure TEXT NOT NULL,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    unrelated_cosine REAL NOT NULL,
    parameters BLOB NOT NULL,  -- msgpack map
    created_at TEXT NOT NULL,  -- ISO 8601, UTC
    seq INTEGER NOT NULL,
    numbers INTEGER NOT NULL,  -- node numbers given out
    tally BLOB NOT NULL,       -- msgpack of codec.Tally
    stamp INTEGER NOT NULL     -- drawn anew by each commit (cache.RowCache)
) STRICT;

-- What changes often is apart from what is large: a commit rewrites many small rows and appends the large ones once.
CREATE TABLE node (
    key INTEGER PRIMARY KEY,
    tree INTEGER NOT NULL,
    id TEXT NOT NULL,
    parent INTEGER,            -- key; NULL for the root
    kind INTEGER NOT NULL,     -- 0 root, 1 summary, 2 leaf
    depth INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    version INTEGER NOT NULL,
    routing INTEGER NOT NULL,
    descendants INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    oldest INTEGER,            -- mark of the oldest contribution; NULL when there is none
    cohesion REAL NOT NULL,
    provisional INTEGER NOT NULL,
    tail BLOB NOT NULL         -- its latest contributions, packed (codec.pack_contributions)
) STRICT;
CREATE UNIQUE INDEX node_by_id ON node (tree, id);
CREATE INDEX node_by_parent ON node (parent, mark);
CREATE INDEX node_dirty ON node (tree, depth DESC, oldest) WHERE oldest IS NOT NULL;

CREATE TABLE vector (
    key INTEGER PRIMARY KEY,   -- the node's
    value BLOB NOT NULL        -- float16, little-endian
) STRICT;

CREATE TABLE content (
    key INTEGER PRIMARY KEY,   -- the node's
    text TEXT NOT NULL,
    item BLOB                  -- msgpack of codec.StoredItem; NULL for a summary
) STRICT;

-- Contributions that a node's row is too small for, in runs. A table of single contributions would have each commit write
-- to as many places as the leaves' ancestors are spread over: half of all pages written, when it was measured.
CREATE TABLE contribution (
    number INTEGER PRIMARY KEY,
    node INTEGER NOT NULL,     -- key
    first INTEGER NOT NULL,    -- marks of the run's first and last
    last INTEGER NOT NULL,
    size INTEGER NOT NULL,     -- how many
    data BLOB NOT NULL         -- packed
) STRICT;
CREATE INDEX contribution_by_node ON contribution (node, first);

CREATE TABLE event (
    tree INTEGER NOT NULL,
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    digest BLOB NOT NULL,
    leaves BLOB NOT NULL,      -- msgpack list of node ids
    PRIMARY KEY (tree, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE log (
    key INTEGER PRIMARY KEY,   -- tree number << KEY_BITS | seq
    entry BLOB NOT NULL        -- msgpack of codec.StoredEntry
) STRICT;
"""

VERSION_2 = """
-- Attributes of the few nodes that have any.
CREATE TABLE attribute (
    key INTEGER PRIMARY KEY,   -- the node's
    value BLOB NOT NULL        -- msgpack map
) STRICT;

-- Edges of the association graph as they were made.
CREATE TABLE link (
    tree INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    data BLOB NOT NULL,        -- msgpack of codec.StoredLink
    PRIMARY KEY (tree, mark)
) STRICT, WITHOUT ROWID;
"""

VERSION_3 = """
-- From this version on commits can remove: an earlier one could not read their log.
"""

MIGRATIONS: tuple[str, ...] = (VERSION_1, VERSION_2, VERSION_3)
"""Scripts in order: the n-th, from 1, brings a file from version n - 1 to n. Never edited once released; only appended to."""


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def check_identity(connection: sqlite3.Connection, path: Path, *, newest: int = len(MIGRATIONS)) -> int:
    """
    The schema version of the file; 0 for an empty one.

    Raises:
        StoreDamagedError: the file belongs to another program.
        StoreVersionError: a newer Banyan wrote it.
    """
    # One transaction: between two reads another process may make the file.
    with nullcontext() if connection.in_transaction else transaction(connection):
        owner, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
        empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if owner != APPLICATION_ID:
        if owner == 0 and version == 0 and empty:
            return 0
        raise StoreDamagedError(f"{path} is an SQLite file of another program; choose another path")
    if version > newest:
        raise StoreVersionError(
            f"{path} has schema version {version}, this Banyan knows versions up to {newest}; upgrade banyan-memory"
        )
    return version


def migrate(connection: sqlite3.Connection, path: Path, *, migrations: Sequence[str] = MIGRATIONS) -> None:
    """
    Bring the file to the newest version, in one transaction; safe when several processes do it at once.

    Raises:
        StoreDamagedError, StoreVersionError: as `check_identity`; nothing was written.
    """
    if check_identity(connection, path, newest=len(migrations)) == len(migrations):
        return
    with transaction(connection, write=True):
        version = check_identity(connection, path, newest=len(migrations))
        for script in migrations[version:]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


def _statements(script: str) -> list[str]:
    """Single statements: `executescript` would commit the transaction they belong to."""
    found, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found

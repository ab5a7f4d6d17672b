"""Trees in one SQLite file: the embedded `TreeStore`."""

from memory.adapters.embedded.store.adapter import SqliteTreeStore

__all__ = ["SqliteTreeStore"]

"""
Banyan's memory, usable as a library: conversations and documents grow, online, into a tree that can be asked.

    from memory import open_local
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.local import LocalMemory, open_local
    from memory.ports.index import Scope
    from memory.records import Document, Feedback, Turn
    from memory.settings import MemorySettings
    from memory.sync import LocalMemorySync, open_local_sync

__all__ = [
    "Document",
    "Feedback",
    "LocalMemory",
    "LocalMemorySync",
    "MemorySettings",
    "Scope",
    "Turn",
    "open_local",
    "open_local_sync",
]

_HOMES = {
    "Document": "memory.records",
    "Feedback": "memory.records",
    "LocalMemory": "memory.local",
    "LocalMemorySync": "memory.sync",
    "MemorySettings": "memory.settings",
    "Scope": "memory.ports.index",
    "Turn": "memory.records",
    "open_local": "memory.local",
    "open_local_sync": "memory.sync",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: the command line imports parts of this package and must answer `--help` at once.
    from importlib import import_module  # noqa: PLC0415

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'memory' has no attribute {name!r}")
    return getattr(import_module(home), name)

"""The `NodeIndex` adapters that the contract suite runs over. Another one is one more line in `OPENERS`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from memory.adapters.embedded.index.node_index import EmbeddedNodeIndex
from memory.ports.index import NodeIndex

Opener = Callable[[], Awaitable[NodeIndex]]


async def _memory(_: Path) -> NodeIndex:
    return await EmbeddedNodeIndex.open(None)


async def _file(folder: Path) -> NodeIndex:
    return await EmbeddedNodeIndex.open(folder / "index.db")


OPENERS: dict[str, Callable[[Path], Awaitable[NodeIndex]]] = {"embedded-memory": _memory, "embedded-file": _file}
SHARED = ("embedded-file",)
"""Adapters whose instances see one another's updates."""

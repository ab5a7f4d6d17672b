"""How the index lies in RediSearch."""

from __future__ import annotations

from dataclasses import dataclass

from memory.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Settings of the index in RediSearch; the defaults are measured (decision 0022)."""

    own_from: int = 30_000
    """
    Nodes from which on a tree is moved to an index of its own, a graph (HNSW); below, it is compared with exactly, among others
    (FLAT). What decides is decision 0022. 1 or more.
    """
    ef_runtime: int = 400
    """How many nodes a search of a graph keeps in view, 10 to 4,096. More finds more of the nearest, and takes longer."""
    ef_construction: int = 100
    """The same while a node is put into a graph, 10 to 4,096."""
    neighbours: int = 16
    """Edges of a node in a graph (HNSW's M), 2 to 512; on the lowest level twice as many."""
    update_nodes_max: int = 512
    """Nodes that are written at once, while the server does nothing else, 1 to 100,000."""
    timeout_ms: int = 2_000
    """
    How long the server may search, 1 to 60,000 ms. A question is two searches in one call: less than half of what the client waits
    for an answer, or it gives up while the server goes on.
    """

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        bounds = {
            "own_from": (1, 10**9),
            "ef_runtime": (10, 4_096),
            "ef_construction": (10, 4_096),
            "neighbours": (2, 512),
            "update_nodes_max": (1, 100_000),
            "timeout_ms": (1, 60_000),
        }
        for name, (least, most) in bounds.items():
            if not least <= getattr(self, name) <= most:
                raise SettingError(f"the search index's {name} must be between {least:,} and {most:,}, got {getattr(self, name):,}")

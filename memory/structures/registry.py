"""Structures by name."""

from __future__ import annotations

from collections.abc import Mapping

from memory.errors import SettingError
from memory.model import EmbeddingModel, TreeInfo
from memory.structures.base import Structure
from memory.structures.memtree import MemTree
from memory.tree.thresholds import MemTreeParameters

NAMES = ("memtree",)


def make(name: str, model: EmbeddingModel, parameters: Mapping[str, float] | None = None) -> Structure:
    """
    The structure of that name.

    Args:
        name: one of `NAMES`.
        model: of the tree's vectors.
        parameters: as a tree remembers them, or None for the defaults.

    Raises:
        SettingError: unknown name, or parameters it cannot have.
    """
    if name != MemTree.name:
        raise SettingError(f"structure {name!r} is not known; there is {', '.join(NAMES)}")
    try:
        return MemTree(model, MemTreeParameters.from_mapping(parameters) if parameters else None)
    except (KeyError, ValueError) as error:
        raise SettingError(f"parameters of structure {name!r} do not fit: {error}") from error


def of(info: TreeInfo) -> Structure:
    """The structure an existing tree was made with."""
    return make(info.structure, info.model, info.parameters)

"""Structures by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from memory.errors import SettingError, TreeMismatchError
from memory.model import EmbeddingModel, TreeInfo
from memory.structures.base import Structure
from memory.structures.hat import Hat
from memory.structures.hmem import HMem
from memory.structures.memgas import MemGas
from memory.structures.memtree import MemTree
from memory.structures.parameters import HatParameters, HMemParameters, MemGasParameters
from memory.tree.thresholds import MemTreeParameters


@dataclass(frozen=True, slots=True)
class Kind:
    """How a structure of one name is made."""

    structure: type[Structure]
    parameters: type[Any]
    """A dataclass with `as_mapping` and `from_mapping` (`memory.structures.parameters.Parameters`)."""
    make: Callable[[EmbeddingModel, Any], Structure]


KINDS: Mapping[str, Kind] = {
    "memtree": Kind(MemTree, MemTreeParameters, MemTree),
    "hat": Kind(Hat, HatParameters, Hat),
    "hmem": Kind(HMem, HMemParameters, HMem),
    "memgas": Kind(MemGas, MemGasParameters, MemGas),
}
"""Every structure that can be had, the default first."""
NAMES = tuple(KINDS)


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
    kind = KINDS.get(name)
    if kind is None:
        raise SettingError(f"structure {name!r} is not known; there is {', '.join(NAMES)}")
    try:
        return kind.make(model, kind.parameters.from_mapping(parameters) if parameters else kind.parameters())
    except (KeyError, ValueError, OverflowError) as error:
        raise SettingError(f"parameters of structure {name!r} do not fit: {error}") from error


def of(info: TreeInfo) -> Structure:
    """
    The structure an existing tree was made with.

    Raises:
        TreeMismatchError: this version does not have it, or not with such parameters.
    """
    try:
        return make(info.structure, info.model, info.parameters)
    except SettingError as error:
        # It is that tree which does not fit, not a setting, and others may be worked on.
        raise TreeMismatchError(f"tree {info.id!r} was made by another version: {error}; upgrade this one") from error

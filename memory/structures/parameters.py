"""
The parameters of structures: numbers that a tree remembers by name.

Apart from the structures, so that settings can name their defaults without loading what computes. MemTree's are in
`memory.tree.thresholds`, with the formula that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """
    Base of a structure's parameters.

    Subclasses add fields of type `int` or `float`, each with a default, a docstring, and a check in `__post_init__` that raises
    ValueError.
    """

    def as_mapping(self) -> dict[str, float]:
        """The form that `TreeInfo.parameters` keeps."""
        return {name: float(value) for name, value in asdict(self).items()}

    @classmethod
    def from_mapping(cls, values: Mapping[str, float]) -> Self:
        """
        The inverse of `as_mapping`; what is not given has its default.

        Raises:
            ValueError: a name that is not known, a fraction for a whole number, or a value out of bounds.
        """
        kinds = {each.name: each.type for each in fields(cls)}
        unknown = sorted(set(values) - set(kinds))
        if unknown:
            raise ValueError(f"there is no parameter {', '.join(unknown)}; there is {', '.join(kinds)}")
        for name, value in values.items():
            if kinds[name] == "int" and value != int(value):
                raise ValueError(f"{name} is a whole number, got {value}")
        return cls(**{name: int(value) if kinds[name] == "int" else float(value) for name, value in values.items()})


MEMORY_LENGTH_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HatParameters(Parameters):
    """What a HAT is made with."""

    memory_length: int = 4
    """Nodes that one node of the layer above aggregates, 2 to 32. More makes a flatter tree with fewer and coarser summaries."""

    def __post_init__(self) -> None:
        if not 2 <= self.memory_length <= MEMORY_LENGTH_MAX:
            raise ValueError(f"memory_length must be between 2 and {MEMORY_LENGTH_MAX}, got {self.memory_length}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemGasParameters(Parameters):
    """What a MemGAS is made with."""

    neighbourhood: int = 32
    """Sessions whose units an arriving turn is compared with, the nearest ones, 1 to 4096. The paper compares with all."""
    links_max: int = 32
    """Edges that an arriving turn gets at most, to the nearest units of its accept set, 1 to 1024. The paper has no limit."""

    def __post_init__(self) -> None:
        if not 1 <= self.neighbourhood <= 4096:
            raise ValueError(f"neighbourhood must be between 1 and 4096, got {self.neighbourhood}")
        if not 1 <= self.links_max <= 1024:
            raise ValueError(f"links_max must be between 1 and 1024, got {self.links_max}")


STRENGTH_DAYS_MAX = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class HMemParameters(Parameters):
    """
    What an H-MEM is made with.

    The calibrated similarity to a node of each layer from which on an item goes below it, and what feedback and silence do to an
    episode's weight (`memory.structures.weights`).
    """

    domain: float = 0.35
    """Of domains, in [-1, 1]. Higher makes more of them. Measured in decision 0018, as those below."""
    category: float = 0.45
    """Of the categories of a domain, in [-1, 1]."""
    trace: float = 0.55
    """Of the memory traces of a category, in [-1, 1]."""
    approval: float = 1.5
    """What an approval multiplies a weight by, 1 to 10. The paper names a factor and no figure."""
    rebuttal: float = 0.5
    """What a rebuttal multiplies a weight by, 0.1 to 1."""
    strength_days: float = 365.0
    """Days of silence after which a weight is down to 1/e, above 0 and at most 36,500; each approval adds as many."""

    def __post_init__(self) -> None:
        for name, value in (("domain", self.domain), ("category", self.category), ("trace", self.trace)):
            if not -1.0 <= value <= 1.0:
                raise ValueError(f"{name} must be between -1 and 1, got {value}")
        if not 1.0 <= self.approval <= 10.0:
            raise ValueError(f"approval must be between 1 and 10, got {self.approval}")
        if not 0.1 <= self.rebuttal <= 1.0:
            raise ValueError(f"rebuttal must be between 0.1 and 1, got {self.rebuttal}")
        if not 0.0 < self.strength_days <= STRENGTH_DAYS_MAX:
            raise ValueError(f"strength_days must be above 0 and at most {STRENGTH_DAYS_MAX}, got {self.strength_days}")

    def of_layer(self, depth: int) -> float:
        """The threshold of the children of a node at depth 0, 1 or 2."""
        return (self.domain, self.category, self.trace)[depth]

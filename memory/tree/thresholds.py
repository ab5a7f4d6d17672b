"""How similar an item must be to go deeper (MemTree, section 3.1 and A.1.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemTreeParameters:
    """The parameters of MemTree's depth-adaptive threshold; fixed for a tree when it is made."""

    base: float = 0.4
    """θ₀, the calibrated similarity asked for below the root, in (0, 1). Higher makes wider, shallower trees (A.3.7)."""
    rate: float = 0.5
    """λ, how much more is asked for with depth, 0 or more."""
    depth_max: int = 8
    """Deepest level a leaf can have, 1 to 64; at this depth an item is attached and no leaf is expanded. Also the d_max of the
    formula, so that θ(depth_max) = base · e^rate = 0.66. The paper gives no value. Measured in decision 0002: deeper trees cost one
    more summary an item a level and find nothing more."""

    def __post_init__(self) -> None:
        if not 0.0 < self.base < 1.0:
            raise ValueError(f"base must be between 0 and 1, got {self.base}")
        if not 0.0 <= self.rate <= 5.0:
            raise ValueError(f"rate must be between 0 and 5, got {self.rate}")
        if not 1 <= self.depth_max <= 64:
            raise ValueError(f"depth_max must be between 1 and 64, got {self.depth_max}")

    def threshold(self, depth: int) -> float:
        """
        θ(depth) = base · exp(rate · depth / depth_max) (A.1.3).

        Args:
            depth: of the node whose children are compared; the root's is 0.

        Returns:
            The calibrated similarity that the best child must reach.
        """
        return self.base * math.exp(self.rate * depth / self.depth_max)

    def as_mapping(self) -> dict[str, float]:
        """The form that `TreeInfo.parameters` keeps."""
        return {name: float(value) for name, value in asdict(self).items()}

    @classmethod
    def from_mapping(cls, values: Mapping[str, float]) -> MemTreeParameters:
        """The inverse of `as_mapping`."""
        return cls(base=values["base"], rate=values["rate"], depth_max=int(values["depth_max"]))

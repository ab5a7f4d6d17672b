"""MemTree as plainly as it can be written, slow and obviously right: the oracle of the real one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from memory.model import Vector
from memory.tree.similarity import merge_means

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class PlainNode:
    name: str
    vector: Vector | None
    children: list[PlainNode] = field(default_factory=list)


class PlainMemTree:
    """Section 3.1 of the paper, as text and Algorithm 1 have it; summaries' vectors are the mean of the two first leaves."""

    def __init__(self, base: float, rate: float, depth_max: int) -> None:
        self.base, self.rate, self.depth_max = base, rate, depth_max
        self.root = PlainNode("root", None)

    def insert(self, name: str, vector: Vector) -> None:
        node, depth = self.root, 0
        while True:
            best: PlainNode | None = None
            for child in node.children:
                if best is None or self._closer(vector, child, best):
                    best = child
            threshold = self.base * math.exp(self.rate * depth / self.depth_max)
            if best is None or best.vector is None or float(best.vector @ vector) < threshold:
                break
            if not best.children:
                if depth + 1 >= self.depth_max:
                    break
                assert best.vector is not None
                mean, _ = merge_means([(best.vector, 1.0, 1), (vector, 1.0, 1)])
                summary = PlainNode("+", mean, [best, PlainNode(name, vector)])
                node.children[node.children.index(best)] = summary
                return
            node, depth = best, depth + 1
        node.children.append(PlainNode(name, vector))

    @staticmethod
    def _closer(vector: Vector, left: PlainNode, right: PlainNode) -> bool:
        assert left.vector is not None
        assert right.vector is not None
        return float(np.dot(left.vector, vector)) > float(np.dot(right.vector, vector))

    def shape(self) -> object:
        return _shape(self.root)


def _shape(node: PlainNode) -> object:
    return frozenset(_shape(child) for child in node.children) if node.children else node.name

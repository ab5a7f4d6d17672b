"""Numeric columns that grow, and the order of leaves within their sequences."""

from __future__ import annotations

from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


class Column(Generic[Scalar]):
    """A one-dimensional array with room to grow: appending costs the same however long it is."""

    __slots__ = ("_room", "_size")

    def __init__(self, dtype: DTypeLike) -> None:
        self._room: NDArray[Scalar] = np.zeros(64, dtype)
        self._size = 0

    @property
    def values(self) -> NDArray[Scalar]:
        """(n,) window; good until the next append."""
        return self._room[: self._size]

    @property
    def nbytes(self) -> int:
        """Memory taken, room included."""
        return self._room.nbytes

    def extend(self, values: NDArray[Scalar]) -> None:
        """Append the values."""
        size = self._size + len(values)
        if size > len(self._room):
            room = np.zeros(max(size, len(self._room) * 3 // 2), self._room.dtype)
            room[: self._size] = self.values
            self._room = room
        self._room[self._size : size] = values
        self._size = size


class Sequences:
    """
    Leaves in order of (time, mark) within each sequence, and every leaf's rank there.

    Arrivals in order are appended; late ones and removals only mark their sequence, which is sorted when it is next asked for.
    """

    __slots__ = ("_marks", "_members", "_ranks", "_times", "_unsettled")

    def __init__(self, times: Column[np.int64], marks: Column[np.int64]) -> None:
        self._times, self._marks = times, marks
        self._members: dict[int, list[int]] = {}
        self._ranks: Column[np.int32] = Column(np.int32)
        self._unsettled: dict[int, set[int]] = {}

    def extend(self, base: int, codes: NDArray[np.int32]) -> None:
        """Take in slots `base`, `base + 1`, …: their sequences' codes, -1 for a slot without one."""
        self._ranks.extend(np.full(len(codes), -1, np.int32))
        offsets = np.flatnonzero(codes >= 0)
        if not len(offsets):
            return
        slots = offsets + base
        times, marks, ranks = self._times.values, self._marks.values, self._ranks.values
        order = np.lexsort((marks[slots], times[slots], codes[offsets]))
        slots, codes = slots[order], codes[offsets][order]
        edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        for start, end in pairwise(edges):
            code, new = int(codes[start]), slots[start:end]
            members = self._members.setdefault(code, [])
            if members:
                last, first = members[-1], int(new[0])
                if (times[last], marks[last]) > (times[first], marks[first]):
                    self._unsettled.setdefault(code, set())
            ranks[new] = np.arange(len(members), len(members) + len(new))
            members.extend(new.tolist())

    def remove(self, slot: int, code: int) -> None:
        """Take a slot out of its sequence."""
        self._unsettled.setdefault(code, set()).add(slot)

    def ranks(self, slots: NDArray[np.intp], codes: NDArray[np.int32]) -> NDArray[np.int32]:
        """(len(slots),) places of slots in their sequences, from 0; -1 where the code is."""
        self._settle_all(codes)
        return np.where(codes >= 0, self._ranks.values[slots], np.int32(-1))

    def around(self, slots: NDArray[np.intp], codes: NDArray[np.int32], spread: int) -> set[int]:
        """The slots and those within `spread` of them in their sequences."""
        ranks, members = self.ranks(slots, codes).tolist(), self._members
        near: set[int] = set()
        for code, rank in zip(codes.tolist(), ranks, strict=True):
            near.update(members[code][max(0, rank - spread) : rank + spread + 1])
        return near

    def _settle_all(self, codes: NDArray[np.int32]) -> None:
        if self._unsettled:
            for code in self._unsettled.keys() & set(codes.tolist()):
                self._settle(code)

    def _settle(self, code: int) -> None:
        gone = self._unsettled.pop(code)
        slots = np.array([slot for slot in self._members[code] if slot not in gone], np.int64)
        slots = slots[np.lexsort((self._marks.values[slots], self._times.values[slots]))]
        self._ranks.values[slots] = np.arange(len(slots))
        self._members[code] = slots.tolist()

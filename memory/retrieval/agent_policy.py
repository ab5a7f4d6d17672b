"""Navigators without a model, under the same moves as a model has: best-first by similarity, and chance, to compare with."""

from __future__ import annotations

import zlib

from memory.ports.navigator import Action, Choice, Navigator, Situation

LAST = 2
"""Moves that are kept for stepping down to a leaf and stopping there."""


class BestFirst(Navigator):
    """
    Goes to the nearest summary in reach that was not visited, and with its last moves down to the nearest leaf, where it stops.

    Whoever stands on a node sees its children. So it does not step on leaves to look at them: in the layer above it goes on along
    the layer, or up and down again, and each move brings the leaves of another node in sight. On LoCoMo this found a quarter more
    turns in eight moves than stopping at the first leaf that nothing in sight was nearer than (docs/structures.md).
    """

    @property
    def name(self) -> str:
        """`similarity`."""
        return "similarity"

    async def choose(self, situation: Situation) -> Choice:
        """See `Navigator.choose`."""
        ways = situation.ways
        if situation.layer == situation.layers - 1:
            return Choice(action=Action.SUFFICIENT, reason=f"the nearest text below the last node ({situation.similarity:.2f})")
        above_leaves = situation.layer == situation.layers - 2
        if above_leaves and situation.moves_left <= LAST and Action.DOWN in ways:
            return Choice(action=Action.DOWN, reason="the last moves are for the nearest text")
        fresh = [
            (ways[action].similarity, action)
            for action in (Action.DOWN, Action.LEFT, Action.RIGHT)
            if action in ways and not ways[action].visited and not (action is Action.DOWN and above_leaves)
        ]
        if fresh:
            similarity, action = max(fresh, key=lambda each: each[0])
            return Choice(action=action, reason=f"the nearest node in reach that was not visited ({similarity:.2f})")
        for action in (Action.UP, Action.RESET):
            if action in ways:
                return Choice(action=action, reason="everything around was visited")
        if Action.DOWN in ways:
            return Choice(action=Action.DOWN, reason="only texts are left")
        return Choice(action=Action.INSUFFICIENT, reason="everything in reach was visited")


class RandomWalk(Navigator):
    """Any move that is possible, each as likely; the same walk for the same question. What another navigator has to beat."""

    @property
    def name(self) -> str:
        """`random`."""
        return "random"

    async def choose(self, situation: Situation) -> Choice:
        """See `Navigator.choose`."""
        ways = sorted(situation.ways)
        if not ways:
            return Choice(action=Action.INSUFFICIENT, reason="no way is left")
        drawn = zlib.crc32(f"{situation.question}\x00{len(situation.walk)}\x00{situation.layer}/{situation.node}".encode())
        return Choice(action=ways[drawn % len(ways)], reason="by chance")

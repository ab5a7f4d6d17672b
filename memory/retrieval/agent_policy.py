"""Navigators without a model, under the same moves as a model has: best-first by similarity, and chance, to compare with."""

from __future__ import annotations

import zlib

from memory.ports.navigator import Action, Choice, Navigator, Situation


class BestFirst(Navigator):
    """
    Goes to the nearest summary in reach that was not visited, down to where the leaves below a node are in sight, and along there.

    A node whose leaves are all in sight has nothing more to give, so that no move is spent on going below it: each move from there
    on brings the leaves of another such node in sight. What they say is judged at the end, all of it together. On LoCoMo this
    found three times as many sessions in eight moves as going down to single leaves did (docs/structures.md).
    """

    @property
    def name(self) -> str:
        """`similarity`."""
        return "similarity"

    async def choose(self, situation: Situation) -> Choice:
        """See `Navigator.choose`."""
        ways = situation.ways
        if situation.read and situation.layer == 0:
            return Choice(action=Action.INSUFFICIENT, reason="all texts are in sight and are judged together")
        useful = (Action.LEFT, Action.RIGHT) if situation.read else (Action.DOWN, Action.LEFT, Action.RIGHT)
        fresh = [(ways[action].similarity, action) for action in useful if action in ways and not ways[action].visited]
        if fresh:
            similarity, action = max(fresh, key=lambda each: each[0])
            return Choice(action=action, reason=f"the nearest node in reach that was not visited ({similarity:.2f})")
        for action in (Action.UP, Action.RESET):
            if action in ways:
                return Choice(action=action, reason="everything around was visited")
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

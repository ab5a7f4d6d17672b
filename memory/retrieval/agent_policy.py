"""A navigator without a model: best-first by similarity, under the same moves as a model has."""

from __future__ import annotations

from memory.ports.navigator import MOVES, Action, Choice, Navigator, Situation


class BestFirst(Navigator):
    """
    Goes to the nearest node in reach that was not visited; at a leaf it stops once nothing that it has seen on the way is nearer.

    Where everything around was visited it goes up, or back to the root when the nearest node in sight lies further off.
    """

    @property
    def name(self) -> str:
        """`similarity`."""
        return "similarity"

    async def choose(self, situation: Situation) -> Choice:
        """See `Navigator.choose`."""
        fresh = [(action, way) for action, way in situation.ways.items() if not way.visited and action in MOVES]
        leaf = situation.layer == situation.layers - 1
        best = max(fresh, key=lambda each: (each[1].similarity, -MOVES.index(each[0])), default=None)
        if leaf and situation.similarity >= situation.ahead:
            return Choice(
                action=Action.SUFFICIENT, reason=f"nothing in sight is nearer than this text ({situation.similarity:.2f})"
            )
        if leaf and situation.moves_left == 1:
            return Choice(action=Action.SUFFICIENT, reason="no move is left")
        if best is not None and (not leaf or best[1].similarity >= situation.ahead - 1e-6):
            action, way = best
            return Choice(action=action, reason=f"the nearest node in reach that was not visited ({way.similarity:.2f})")
        for action in (Action.UP, Action.RESET):
            if action in situation.ways:
                return Choice(action=action, reason=f"a nearer node is in sight elsewhere ({situation.ahead:.2f})")
        if best is not None:
            action, way = best
            return Choice(action=action, reason=f"the only way on ({way.similarity:.2f})")
        return Choice(action=Action.INSUFFICIENT, reason="everything in reach was visited")

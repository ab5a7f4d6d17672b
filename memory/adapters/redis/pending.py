"""What waits to be summarized in all trees, a page of names and one round for its trees at a time."""

from __future__ import annotations

from memory.adapters.redis.keys import trees_key
from memory.adapters.redis.link import Link
from memory.errors import TreeNotFoundError
from memory.model import TreeId
from memory.ports.store import Pending

TREES_PER_READ = 500


async def pending(link: Link) -> Pending:
    """`TreeStore.pending`."""
    key = trees_key(link.settings.prefix)
    trees = contributions = nodes = 0
    after = "-"
    while names := await link.command("ZRANGE", key, after, "+", "BYLEX", "LIMIT", 0, TREES_PER_READ):
        calls = []
        for name in names:
            keys = link.keys(TreeId(name.decode()))
            calls.append(((keys.state, keys.dirty), ()))
        for answer in await link.scripts("pending", calls):
            if isinstance(answer, TreeNotFoundError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            trees, contributions, nodes = trees + 1, contributions + int(answer[0]), nodes + int(answer[1])
        after = f"({names[-1].decode()}"
    return Pending(trees=trees, contributions=contributions, nodes=nodes)

"""Taking what was forgotten out of the change log and out of the edges, some entries at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from memory.adapters.redis.codec import encode, for_lua
from memory.adapters.redis.link import Link
from memory.adapters.redis.log_codec import redacted
from memory.errors import StoreBusyError, StoreVersionError
from memory.model import NodeId, TreeId

ENTRIES_PER_READ = 256
"""Log entries whose names one script looks through at most: about a millisecond of the server."""
BYTES_PER_READ = 1 << 20
"""Of entries that are to be redacted, after which no more are given at once."""
LINKS_PER_READ = 100
"""Elements of the list of edges that one script looks through, each with as many edges as a node gets at once."""
TRIES_MAX = 20
"""Times that entries are read again that somebody else redacted meanwhile."""


async def redact(link: Link, tree: TreeId, nodes: Mapping[NodeId, int], *, to: int) -> None:
    """`TreeStore.redact`."""
    keys = link.keys(tree)
    last, after, tries = max(nodes.values(), default=0), 0, 0
    wanted = encode(list(nodes))
    while last:
        answer = await link.script(
            "redact_find", [keys.state, keys.log, keys.bodies], after, last, ENTRIES_PER_READ, BYTES_PER_READ, wanted
        )
        following, *flat = answer
        changed = []
        for at in range(0, len(flat), 3):
            seq, names, body = int(flat[at]), flat[at + 1], flat[at + 2]
            if not body:
                raise StoreVersionError(
                    f"tree {tree}: its change log was begun by a Banyan that could not forget, and cannot be redacted; "
                    "export the tree and import it under another name"
                )
            left = redacted(names, body, {node for node, through in nodes.items() if through >= seq})
            if left is not None:
                changed.append((str(seq), hashlib.sha1(body, usedforsecurity=False).hexdigest(), for_lua(left)))
        if changed and await link.script("redact_write", [keys.state, keys.bodies], 0, encode(changed)):
            tries += 1
            if tries > TRIES_MAX:
                raise StoreBusyError(
                    f"tree {tree}: others redact the same entries of its change log again and again", retry_after=1.0
                )
            continue
        after, last, tries = int(following), last if int(following) else 0, 0
    at = 0
    while nodes:
        at = await link.script("redact_links", [keys.state, keys.nodes, keys.links], at, LINKS_PER_READ)
        if not at:
            break
    await link.script("redact_write", [keys.state, keys.bodies], to, encode([]))

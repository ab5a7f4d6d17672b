"""Ports for servers that are started a moment later, and again after they were killed: nobody else may have them meanwhile."""

from __future__ import annotations

import random
import socket

RANGE = range(20_000, 32_000)
"""Below those that systems give to outgoing connections and to whoever asks for any port."""
_kept: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on, and that no other run of the tests is given while this process lives."""
    return [_free_port() for _ in range(count)]


def _free_port() -> int:
    drawn = random.SystemRandom()
    while True:
        port = drawn.choice(RANGE)
        # The UDP port of the same number is what is kept: servers need the other.
        kept = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            kept.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            kept.close()
            continue
        _kept.append(kept)
        return port

"""`banyan serve` in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.e2e.commands import Banyan


@contextmanager
def serving(banyan: Banyan, *arguments: str, **variables: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """A client of it, and the process; killed at the end."""
    process = banyan.start("serve", "--port", "0", "--json", *arguments, **variables)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate()[1].decode()
        with httpx.Client(base_url=json.loads(line)["url"], timeout=180) as client:
            yield client, process
    finally:
        process.kill()
        process.communicate()

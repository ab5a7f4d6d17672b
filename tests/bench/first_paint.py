"""First paint of the page with a tree of 100,000 leaves: from the address being entered until the map is drawn, in Chromium."""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from memory import open_local
from memory.adapters.embedded.clock import SystemClock
from memory.settings import IngestSettings
from streams.query.app import create_app
from streams.query.guard import Guard
from streams.query.listening import config_of
from streams.query.service import Service
from streams.query.writing import DirectWriter
from streams.settings import Settings
from tests.bench.corpus import Corpus, GivenVectors
from tests.bench.inserts import LARGE, TREE
from tests.e2e.browsing import Page
from tests.servers.browser import chromium

VISITS = 11
"""The first has an empty cache, the others do not."""
SETTLED = """
const drawn = performance.getEntriesByName('banyan-drawn')[0];
const painted = performance.getEntriesByName('first-contentful-paint')[0];
return drawn && painted && document.querySelector('.row') ? [painted.startTime, drawn.startTime] : null
"""
SENT = """
return performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))
    .filter((each) => !each.name.includes('/v1/')).reduce((sum, each) => sum + each.transferSize, 0)
"""


@asynccontextmanager
async def grown(folder: Path, leaves: int) -> AsyncIterator[int]:
    """A tree behind the service's application, which has nothing else to do: no summaries are made. Gives the port."""
    corpus = Corpus()
    async with await open_local(folder, embedder=GivenVectors(corpus), summaries=False) as memory:
        if not await memory.trees():
            await memory.ingest_stream(corpus.turns(TREE, 0, leaves))
        settings = replace(Settings(), auth="off")
        guard = Guard.of(settings, SystemClock())
        app = create_app(Service(memory, DirectWriter(memory)), guard, limits=IngestSettings())
        app.openapi()
        with socket.socket() as own:
            own.bind(("127.0.0.1", 0))
            own.listen(64)
            server = uvicorn.Server(config_of(settings.serve, app))
            server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
            serving = asyncio.create_task(server.serve(sockets=[own]))
            yield own.getsockname()[1]
            app.state.draining.set()
            server.should_exit = True
            await serving


def look(url: str) -> dict[str, Any]:
    """Milliseconds until the first text stands there, and until the map is drawn."""
    first: list[float] = []
    drawn: list[float] = []
    sent = 0
    with chromium() as driver:
        page = Page(driver, url)
        for visit in range(VISITS):
            page.open(f"#/t/{TREE}")
            text, whole = page.until(lambda: page.run(SETTLED), "the map")
            first.append(text)
            drawn.append(whole)
            sent = sent if visit else page.run(SENT)
            time.sleep(1)
        assert page.complaints() == []
    return {
        "cold_ms": round(drawn[0]),
        "drawn_ms": round(statistics.median(drawn[1:])),
        "drawn_most_ms": round(max(drawn[1:])),
        "first_text_ms": round(statistics.median(first[1:])),
        "sent_kb": round(sent / 1000, 1),
        "leaves": LARGE,
    }


async def main() -> None:
    """Measure and print; a folder that is given keeps the tree."""
    with tempfile.TemporaryDirectory() as name:
        async with grown(Path(sys.argv[1] if sys.argv[1:] else name), LARGE) as port:
            found = await asyncio.to_thread(look, f"http://localhost:{port}")
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())

"""Draws docs/images/tree.svg: what `banyan demo` shows of the example chats, as a picture."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from rich.console import Console

from memory import open_local
from streams.cli.look import draw

HERE = Path(__file__).parent
WIDTH = 112


async def main() -> None:
    """Grow the example trees and draw one."""
    records = [json.loads(line) for line in (HERE.parents[1] / "examples" / "data" / "turns.jsonl").read_text().splitlines()]
    async with await open_local() as memory:
        await memory.ingest(records)
        await memory.fresh()
        top = await memory.tree("demo-chats", depth=2, children=5)
    console = Console(record=True, width=WIDTH, file=(HERE / "tree.txt").open("w"), force_terminal=True)
    console.print(draw(top, "demo-chats", WIDTH))
    (HERE / "tree.txt").unlink()
    picture = console.export_svg(title="banyan tree demo-chats --depth 2")
    # The template fetches its font from elsewhere; a picture in a repository stands alone.
    (HERE / "tree.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    asyncio.run(main())

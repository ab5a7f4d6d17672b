"""Model calls an item at four arrival rates (`tests.bench.llm_calls`), for clustered items and for turns of conversations."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import msgspec

from memory.settings import SummarySettings
from tests.bench.example import data_folder, example_turns, locomo_turns
from tests.bench.llm_calls import CALLS_AT_ONCE, curve

ITEMS = 1_000


def main() -> None:
    """Measure and print."""
    settings = SummarySettings(workers=CALLS_AT_ONCE)
    folder = data_folder()
    turns = locomo_turns(folder) if folder is not None else example_turns()
    with tempfile.TemporaryDirectory() as name:
        texts = Path(name) / "turns.jsonl"
        texts.write_bytes(b"\n".join(msgspec.json.encode(turn) for turn in turns))
        conversations = curve(min(ITEMS, len(turns)), texts, settings)
    clustered = curve(ITEMS, None, settings)
    result = {
        "linger_s": settings.linger.total_seconds(),
        "clustered": {f"{point.rate:g}": round(point.total, 2) for point in clustered},
        "clustered_arriving": {f"{point.rate:g}": round(point.streaming, 2) for point in clustered},
        "conversations": {f"{point.rate:g}": round(point.total, 2) for point in conversations},
        "conversations_arriving": {f"{point.rate:g}": round(point.streaming, 2) for point in conversations},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

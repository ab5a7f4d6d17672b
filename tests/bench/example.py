"""The example data, and LoCoMo's turns where they are at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

from memory.records import Turn, parse

DATA_VARIABLE = "BANYAN_BENCH_DATA"
EXAMPLES = Path(__file__).parents[2] / "examples" / "data"


def data_folder() -> Path | None:
    """The folder of data sets, or None."""
    name = os.environ.get(DATA_VARIABLE)
    return Path(name) if name else None


def example_turns() -> list[Turn]:
    """The turns of the example chats."""
    lines = (EXAMPLES / "turns.jsonl").read_text().splitlines()
    return [record for line in lines if isinstance(record := parse(json.loads(line)), Turn)]


def locomo_turns(folder: Path) -> list[Turn]:
    """The turns of LoCoMo's conversations, one tree each; a picture's caption is part of what was said."""
    turns = []
    for line in (folder / "locomo" / "conversations.jsonl").read_text().splitlines():
        conversation = json.loads(line)
        for session in conversation["sessions"]:
            for turn in session["turns"]:
                caption = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
                record = parse(
                    {
                        "tree": conversation["sample_id"],
                        "id": turn["dia_id"],
                        "conversation": f"session-{session['session']}",
                        "speaker": turn["speaker"],
                        "text": turn["text"] + caption,
                        "at": session["date_iso"],
                    }
                )
                assert isinstance(record, Turn)
                turns.append(record)
    return turns

"""Evidence recall on the data sets, through `banyan eval`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.example import DATA_VARIABLE, data_folder

PASSAGES = ("hotpotqa", "musique", "twowiki")


def evaluate(form: str, folder: Path) -> dict[str, Any]:
    """The last line of `banyan eval … --json`."""
    command = [sys.executable, "-m", "streams.cli", "eval", form, str(folder), "--json"]
    environment = {name: value for name, value in os.environ.items() if name != DATA_VARIABLE}
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


def compared(result: dict[str, Any]) -> list[float]:
    """R@10 of hybrid, dense and BM25."""
    return [result["strategies"][name]["turn"]["recall@10"] for name in ("hybrid", "dense", "bm25")]


def main() -> None:
    """Measure and print."""
    folder = data_folder()
    if folder is None:
        sys.exit("BANYAN_BENCH_DATA names no folder of data sets")
    locomo = evaluate("locomo", folder / "locomo")
    hybrid = locomo["strategies"]["hybrid"]
    figures: dict[str, Any] = {
        "locomo_turn": hybrid["turn"]["recall@10"],
        "locomo_session": hybrid["session"]["recall@10"],
        "locomo": compared(locomo),
        "multihoprag": compared(evaluate("multihoprag", folder / "multihoprag")),
    }
    figures.update({name: compared(evaluate("passages", folder / name)) for name in PASSAGES})
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

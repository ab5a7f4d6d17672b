"""
`make bench`: measures the figures of docs/benchmarks.md on this machine and writes it (`hmem` and `router`: parts of
docs/evaluation.md).

Each part runs in a process of its own and prints one JSON object; `python -m tests.bench.<part>` runs one alone. Data sets are
looked for in the folder that BANYAN_BENCH_DATA names (`locomo/`, `multihoprag/`, …); parts that need them, or servers that cannot
be started here, are left out, and said to be.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
EVALUATION = ROOT / "docs" / "evaluation.md"
SEARCH_URL = "BANYAN_TEST_SEARCH_URL"
PARTS = ("inserts", "search", "memgas", "models", "endtoend", "calls", "pool", "quality", "hmem", "router")
ON_SERVERS = ("pipeline", "writers", "searchable", "tenants", "takeover", "holding", "service")
"""Parts that start Kafka and Redis; left out, and said to be, where those cannot be started."""
IN_BROWSER = ("first_paint",)
"""Parts that start Chromium; the same holds for them."""
ON_SEARCH = ("redisearch",)
"""Parts that need a server with the search module; the same holds for them."""


def main() -> int:
    """Run the parts named on the command line, or all, and write the page; a part that fails takes no other with it."""
    wanted = sys.argv[1:] or [*PARTS, *ON_SERVERS, *IN_BROWSER, *ON_SEARCH]
    results: dict[str, Any] = {}
    failed = 0
    kept = ROOT / "docs" / "benchmarks.json"
    if kept.exists():
        results = json.loads(kept.read_text())
    for part in wanted:
        print(f"— {part}", flush=True)
        lacking = lacks(part)
        if lacking:
            print(f"  left out: {lacking}", file=sys.stderr)
            continue
        run = subprocess.run(
            [sys.executable, "-m", f"tests.bench.{part}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            env=environment(),
        )
        if run.returncode:
            print(f"  {part} failed with exit code {run.returncode}", file=sys.stderr)
            failed = 1
            continue
        result = json.loads(run.stdout.splitlines()[-1])
        results[part] = {**result, "commit": commit(), "machine": machine(), "on": f"{datetime.now(UTC):%Y-%m-%d}"}
        print(f"  {json.dumps(result)}", flush=True)
        kept.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    from tests.bench.page import render  # noqa: PLC0415

    PAGE.write_text(render(results))
    from tests.bench import page_hmem, page_router  # noqa: PLC0415

    for part, of in (("hmem", page_hmem), ("router", page_router)):
        if part in wanted and part in results:
            EVALUATION.write_text(of.written(EVALUATION.read_text(), results[part]))
    print(f"written: {PAGE.relative_to(ROOT)}")
    return failed


def lacks(part: str) -> str:
    """Why a part cannot be measured here; empty when it can."""
    if part in ON_SEARCH:
        return "" if os.environ.get(SEARCH_URL) else f"{SEARCH_URL} names no server with the search module"
    return lacks_servers() if part in ON_SERVERS else lacks_browser() if part in IN_BROWSER else ""


def lacks_servers() -> str:
    """Why Kafka and Redis cannot be started here; empty when they can."""
    from deploy.local.servers import ServerMissingError, java, kafka_jars, redis_program  # noqa: PLC0415

    try:
        redis_program()
        java()
        kafka_jars()
    except ServerMissingError as error:
        return str(error)
    return ""


def lacks_browser() -> str:
    """Why Chromium cannot be started here; empty when it can."""
    from deploy.local.servers import ServerMissingError  # noqa: PLC0415
    from tests.servers.browser import programs  # noqa: PLC0415

    try:
        programs()
    except ServerMissingError as error:
        return str(error)
    return ""


def environment() -> dict[str, str]:
    """As the command line sets it: vector products here are too small to be shared among threads."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def commit() -> str:
    """Short hash of the checked-out commit, with a plus when files differ from it."""
    names = ["git", "-C", str(ROOT)]
    head = subprocess.run([*names, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    dirty = subprocess.run(
        [*names, "status", "--porcelain", "memory", "streams"], capture_output=True, text=True, check=False
    ).stdout
    return f"{head}+" if dirty.strip() else head


def machine() -> str:
    """Processor, cores, Python."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return f"{os.cpu_count()} cores of {model}, {platform.system()}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())

"""
`python -m tests`: every test, in two runs side by side; what `make test` does.

Tests on real brokers and processes mostly wait. One run does those, while the other does what computes, and the command line in
processes of its own; the first one's output comes when both have ended. With arguments there is one run, with those.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

WAITING = (
    "tests/integration/kafka",
    "tests/chaos",
    "tests/e2e/test_compose_commands.py",
    "tests/e2e/test_page.py",
    "tests/e2e/test_serve.py",
    "tests/e2e/test_service_story.py",
    "tests/e2e/test_up_local.py",
)
PYTEST = (sys.executable, "-m", "pytest")


def main(arguments: list[str]) -> int:
    """The greater exit code of the two."""
    if arguments:
        return subprocess.run([*PYTEST, *arguments], check=False).returncode
    with tempfile.TemporaryFile() as output:
        # A cache of its own: two runs that write one may leave half of it.
        waiting = subprocess.Popen([*PYTEST, "-p", "no:cacheprovider", *WAITING], stdout=output, stderr=subprocess.STDOUT)
        try:
            computing = subprocess.run([*PYTEST, *(f"--ignore={path}" for path in WAITING)], check=False).returncode
            print(f"The tests of {', '.join(WAITING)} are running beside; their output comes when they have ended.", flush=True)
            waited = waiting.wait()
        finally:
            # Its own way out: it stops the servers that it has started.
            waiting.terminate()
            waiting.wait()
            output.seek(0)
            os.write(sys.stdout.fileno(), output.read())
    return max(computing, waited, key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The example of a chat with memory, run as it stands: what one run is told, the next one knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.commands import ROOT
from tests.fakes.openai_server import FakeOpenAIServer

pytestmark = pytest.mark.slow


def test_what_one_run_is_told_the_next_one_knows(tmp_path: Path) -> None:
    def chat(*lines: str) -> str:
        ran = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "chat_with_memory.py"), "ana"],
            input="".join(f"{line}\n" for line in (*lines, "")),
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test-key"},
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    with FakeOpenAIServer() as server:
        assert "Summary: I moved" in chat("I moved to Porto in May.", "My dog is called Rex.")
        chat("Where do I live?")
        first, second, last = (request.body["messages"] for request in server.requests)
    assert "Porto" not in first[0]["content"]
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert "I moved to Porto in May." in last[0]["content"]
    assert last[1:] == [{"role": "user", "content": "Where do I live?"}]

"""The pieces of code on the pages for users, run as they stand, but for addresses, keys and folders."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.e2e.commands import ROOT, Banyan
from tests.e2e.service import serving
from tests.snippets import Snippet, snippets

pytestmark = pytest.mark.slow

TOLD = ("README.md", "docs/cli.md", "docs/http.md", "docs/integrations.md", "docs/mcp.md")
"""Pages whose pieces of Python are run."""


@pytest.fixture
def path(banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with `banyan` on the path for whoever starts it."""
    folder = banyan.folder / "bin"
    folder.mkdir()
    command = folder / "banyan"
    command.write_text(f'#!/bin/sh\nBANYAN_EMBEDDER=hashing PYTHONPATH="{ROOT}" exec "{sys.executable}" -m streams.cli "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("BANYAN_STORE")
    return banyan.folder


def shell(*commands: str, **variables: str) -> str:
    """Run commands as a person types them; all must do what they are to do."""
    script = "\n".join(["set -e", *commands])
    ran = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=240, env={**os.environ, **variables}, check=False
    )
    assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def python(snippet: Snippet, **replaced: str) -> None:
    """Run a piece of Python; one that awaits, in a loop."""
    text = snippet.text
    for name, value in replaced.items():
        assert PLACES[name] in text, f"{snippet}: {name}"
        text = text.replace(PLACES[name], value)
    code = compile(text, str(snippet), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    answer = eval(code, {"__name__": "__main__"})
    if inspect.iscoroutine(answer):
        asyncio.run(answer)


PLACES = {"url": "http://localhost:8000", "key": "banyan_…"}


def test_each_page_with_python_has_its_test() -> None:
    assert {snippet.page for snippet in snippets(language="python")} <= set(TOLD)


def test_the_readme(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    [records] = snippets("README.md", "json")
    lines = [line for line in records.text.splitlines() if json.loads(line)["tree"] == "user-42"]
    (path / "chat.jsonl").write_text("\n".join(lines) + "\n")
    [using] = [snippet for snippet in snippets("README.md", "console") if "banyan ingest" in snippet.text]
    run = [command for command in using.commands if not command.startswith(". .venv")]
    assert len(run) >= 5
    assert "We took the flat in Porto." in shell(*run)
    [library] = snippets("README.md", "python")
    python(library)
    assert "We took the flat in Porto." in capfd.readouterr().out


def test_the_pages_of_the_service_and_its_clients(path: Path, banyan: Banyan, capfd: pytest.CaptureFixture[str]) -> None:
    starting, asking, beside = snippets("docs/http.md", "sh")
    install, create, serve = starting.commands
    assert install.startswith("pip install")
    assert serve == "banyan serve"
    key = shell(create, 'echo "$KEY"').strip()
    with serving(banyan) as (client, _):
        url = str(client.base_url).rstrip("/")
        out = shell(*(command.replace("localhost:8000", url) for command in asking.commands), KEY=key)
        assert '"status":"accepted"' in out
        assert "I moved to Porto in May." in out
        for page, number in (("docs/http.md", 0), ("docs/integrations.md", 0)):
            python(snippets(page, "python")[number], url=url, key=key)
            assert "I moved to Porto in May." in capfd.readouterr().out

        [export, *commands] = snippets("docs/cli.md", "sh")[0].commands
        assert export.startswith("export BANYAN_URL=https://memory.example.org BANYAN_KEY_FILE=~/.config/banyan/key")
        (path / "key").write_text(key)
        (path / "chat.jsonl").write_text('{"id":"t-2","speaker":"Ana","text":"I moved to Porto in May."}\n')
        out = shell(*commands, BANYAN_URL=url, BANYAN_KEY_FILE=str(path / "key"))
        assert "I moved to Porto in May." in out
    assert beside.commands[-1].startswith("banyan serve"), "tests/integration/kafka/test_serve.py runs a service beside workers"


@pytest.mark.usefixtures("path")
def test_the_retriever_over_a_memory_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    python(snippets("docs/integrations.md", "python")[1])
    assert "I moved to Porto in May." in capfd.readouterr().out


def test_the_page_of_tools_for_agents(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    [program] = snippets("docs/mcp.md", "python")
    python(program)
    assert "Ana moved to Porto in May." in capfd.readouterr().out
    config = json.loads(snippets("docs/mcp.md", "json")[0].text)["mcpServers"]["memory"]

    async def host() -> None:
        env = {"BANYAN_STORE": config["env"]["BANYAN_STORE"].replace("/home/ana", str(path))}
        async with Client(
            StdioServerParameters(command=str(path / "bin" / config["command"]), args=config["args"], env=env)
        ) as client:
            assert not (await client.call_tool("remember", {"text": "Ana moved to Porto in May."})).is_error

    asyncio.run(host())
    assert (path / "memory" / "store.db").is_file()

"""What the pages for users show: commands and options that there are, JSON that is JSON, settings that mean something."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from streams.cli.app import cli
from streams.settings import load
from tests.snippets import ROOT, SHELL, Snippet, snippets

COMMAND = re.compile(r"(?:^|[|&;(]|--\s)\s*(?:[A-Z_]+=\S+\s+)*banyan\s+(?P<arguments>[^|&;)>\n]*)")
TYPED = [snippet for snippet in snippets() if snippet.language in SHELL]


def of(language: str) -> list[Snippet]:
    return snippets(language=language)


def parse(arguments: list[str]) -> None:
    """As the command line does, up to where the command would begin."""
    context = cli.make_context("banyan", list(arguments))
    group: click.Group = cli
    while True:
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        context = command.make_context(name, rest, parent=context)
        if not isinstance(command, click.Group):
            return
        group = command


@pytest.mark.parametrize("snippet", TYPED, ids=str)
def test_every_command_is_one_that_there_is(snippet: Snippet) -> None:
    for typed in snippet.commands:
        for found in COMMAND.finditer(typed):
            parse(shlex.split(found["arguments"]))
        if "banyan" in typed.split():
            assert COMMAND.search(typed), typed


@pytest.mark.parametrize("snippet", TYPED, ids=str)
def test_every_target_extra_and_file_is_there(snippet: Snippet) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for typed in snippet.commands:
        for named in re.findall(r"(?:banyan-memory|\.)\[([a-z,]+)\]", typed):
            assert set(named.split(",")) <= extras.keys(), typed
        if target := re.match(r"(?:[A-Z_]+=\S+\s+)*make\s+([a-z-]+)", typed):
            assert target[1] in targets, typed
        for file in re.findall(r"python\s+(\S+\.py)", typed):
            assert (ROOT / file).is_file(), typed


@pytest.mark.parametrize("snippet", of("json"), ids=str)
def test_what_is_shown_as_json_is_json(snippet: Snippet) -> None:
    for config in _values(snippet.text):
        for server in {**config.get("mcpServers", {}), **config.get("servers", {})}.values():
            if "command" in server:
                assert server["command"] == "banyan"
                parse(server["args"])
                assert load(server.get("env", {}), folder=ROOT / "docs").warnings == ()


def _values(text: str) -> Iterator[dict[str, Any]]:
    """One value, or several one after the other; what is left out is shown as …"""
    decoder = json.JSONDecoder()
    rest = re.sub(r"(?<=:)…", "null", re.sub(r",…|(?<={)…", "", text)).strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        yield value
        rest = rest[end:].strip()


@pytest.mark.parametrize("snippet", of("toml"), ids=str)
def test_what_is_shown_as_settings_means_something(snippet: Snippet, tmp_path: Path) -> None:
    file = tmp_path / "banyan.toml"
    file.write_text(snippet.text, encoding="utf-8")
    assert load({}, file=file).warnings == ()

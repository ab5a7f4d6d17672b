"""The pages for users name every command, option and setting, and the defaults as they are."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from streams.cli.app import _COMMANDS, cli
from streams.setting_values import show_value
from streams.settings import CONFIG_VARIABLE, DEBUG_VARIABLE, Setting, known

DOCS = Path(__file__).parents[3] / "docs"
SHARED = {"--json", "--store", "--config", "--help"}


@pytest.mark.parametrize("setting", known().values(), ids=list(known()))
def test_every_setting_is_on_its_page(setting: Setting) -> None:
    default = "" if setting.default is None else f" `{show_value(setting.default)}`"
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert f"| `{setting.variable}` |{default} |" in page


def test_the_page_names_no_setting_that_is_not_there() -> None:
    rows = [line for line in (DOCS / "settings.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = {row.split("`")[1] for row in rows}
    assert named == {setting.variable for setting in known().values()} | {CONFIG_VARIABLE, DEBUG_VARIABLE}


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_is_on_its_page_with_its_options(name: str) -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert f"`banyan {name}" in page
    command = cli.get_command(cli.make_context("banyan", [], resilient_parsing=True), name)
    if command is None or name == "eval":
        return
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not SHARED & set(parameter.opts):
            assert any(option in page for option in parameter.opts), parameter.opts

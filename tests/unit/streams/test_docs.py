"""The pages for users name every command, option and setting, and the defaults as they are."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from streams.cli.app import _COMMANDS, cli
from streams.setting_values import show_value
from streams.settings import CONFIG_VARIABLE, DEBUG_VARIABLE, Setting, known

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(
    r"""\]\(\s*<?(?P<inline>[^)>\s]+)|^\[[^\]]+\]:\s*(?P<defined>\S+)|(?:src|href)="(?P<html>[^"]+)\"""", re.MULTILINE
)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
SHARED = {"--json", "--store", "--config", "--help", "--url"}


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_points_to_a_file(page: Path) -> None:
    found = [next(filter(None, link.groups())) for link in LINK.finditer(CODE.sub("", page.read_text(encoding="utf-8")))]
    relative = [link.partition("#")[0] for link in found if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in relative if not (page.parent / link).exists()] == []

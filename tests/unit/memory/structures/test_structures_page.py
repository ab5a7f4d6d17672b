"""docs/structures.md names every structure, parameter, invariant and strategy as the code has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memory.model import EmbeddingModel
from memory.retrieval.catalogue import STRUCTURES
from memory.structures import registry
from streams.setting_tables import TreeSettings
from streams.settings import Settings, known

PAGE = (Path(__file__).parents[4] / "docs" / "structures.md").read_text("utf-8")
MODEL = EmbeddingModel(name="fake", dimension=4, unrelated_cosine=0.0)


def table(title: str) -> list[list[str]]:
    """Cells of the rows of the first table after a heading."""
    part = PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def code(cell: str) -> str:
    return cell.strip("`")


def test_every_structure_is_told_apart() -> None:
    assert [code(row[0]) for row in table("Which one")] == list(registry.NAMES)


def test_every_parameter_is_there_with_its_default_and_its_setting() -> None:
    rows = {(code(row[0]), code(row[1])): (code(row[2]), float(row[3])) for row in table("Parameters")}
    defaults = {
        (name, parameter): value for name in registry.NAMES for parameter, value in registry.make(name, MODEL).parameters().items()
    }
    assert {key: default for key, (_, default) in rows.items()} == defaults
    by_variable = {setting.variable: setting for setting in known().values()}
    for (name, parameter), (variable, default) in rows.items():
        setting = by_variable[variable]
        assert float(setting.default) == default
        changed = TreeSettings(structure=name, **{setting.path[-1]: type(setting.default)(2)})
        assert changed.parameters()[parameter] == 2.0, f"{variable} gives {parameter}"


@pytest.mark.parametrize("name", registry.NAMES)
def test_settings_give_a_structure_what_it_knows(name: str) -> None:
    given = TreeSettings(structure=name).parameters()
    assert given == registry.make(name, MODEL).parameters() == registry.make(name, MODEL, given).parameters()


def test_a_structure_that_is_not_known_has_no_parameters() -> None:
    assert Settings(tree=TreeSettings(structure="nothing")).tree.parameters() == {}


def test_every_invariant_is_there_with_its_meaning() -> None:
    rows = {(code(row[0]), code(row[1])): row[2] for row in table("What `banyan check` holds")}
    meanings = {
        (name, invariant): meaning
        for name, kind in registry.KINDS.items()
        for invariant, meaning in kind.structure.invariants.items()
    }
    assert rows == meanings


def test_every_strategy_that_is_particular_says_where_it_works() -> None:
    particular = {name: sorted(structures) for name, structures in STRUCTURES.items() if structures is not None}
    assert {code(row[0]): sorted(re.findall(r"`(\w+)`", row[1])) for row in table("Strategies")} == particular

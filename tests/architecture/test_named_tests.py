"""Tests that the documentation names are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
NAMED = re.compile(r"`(?:tests/)?([\w/]+\.py)::(\w+)`")


def test_tests_that_the_documentation_names_are_there() -> None:
    named = {found for page in DOCS.glob("*.md") for found in NAMED.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 20, "what is looked for is written otherwise now"
    missing = [f"{file}::{name}" for file, name in sorted(named) if name not in _functions(TESTS / file)]
    assert missing == []


def _functions(file: Path) -> set[str]:
    if not file.is_file():
        return set()
    body = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}

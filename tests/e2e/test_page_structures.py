"""The page on trees of every structure: drawn, walked through, asked in their own way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from memory.retrieval.catalogue import strategies_for
from memory.structures import registry
from streams.bootstrap import open_memory
from streams.settings import load
from tests.conftest import served
from tests.e2e.browsing import Page, PageService, page_service
from tests.e2e.commands import ENVIRONMENT
from tests.servers.browser import chromium

pytestmark = pytest.mark.slow
SUBJECTS = ("the harbour tunnel", "a winter garden of roses", "violin lessons", "the price of bread")
COUNT = 40
CHOOSE = """
    const choice = document.querySelector("#strategy");
    choice.value = arguments[0];
    choice.dispatchEvent(new Event("change"));
"""
ASKED = "return performance.getEntriesByType('resource').map((each) => each.name)"


def answered(page: Page, strategy: str) -> bool:
    """Whether the page has asked by that strategy and got an answer."""
    return any(f"strategy={strategy}" in each and "/explain?" in each for each in page.run(ASKED))


@pytest.fixture(scope="module")
def driver(pytestconfig: pytest.Config) -> Iterator[Any]:
    yield from served(pytestconfig, "the page in Chromium", lambda: chromium(width=1440, height=900))


async def grow(store: str, structure: str) -> None:
    given = {**ENVIRONMENT, "BANYAN_STORE": store, "BANYAN_STRUCTURE": structure}
    turns = [
        {"id": f"e{number}", "text": f"{SUBJECTS[number % 4]}, part {number}", "conversation": f"c{number // 8}", "speaker": "Ana"}
        for number in range(COUNT)
    ]
    async with await open_memory(load(given).settings) as memory:
        await memory.ingest(turns, tree=structure)
        await memory.fresh(structure)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageService]:
    folder = tmp_path_factory.mktemp("structures")
    for structure in registry.NAMES:
        asyncio.run(grow(f"sqlite:///{folder / 'memory'}", structure))
    with page_service(folder, BANYAN_AUTH="off") as running:
        yield running


@pytest.mark.parametrize("structure", registry.NAMES)
def test_it_is_drawn_walked_through_and_asked_in_its_own_way(driver: Any, service: PageService, structure: str) -> None:
    page = Page(driver, service.url)
    page.open(f"#/t/{structure}")
    page.until(lambda: page.all(".arc"), "the map")
    page.says("[data-figure=items]", str(COUNT))
    assert int(page.text(".centre-amount")) == COUNT
    page.one(".row.summary .twist").click()
    page.until(lambda: page.all(".row[aria-level='2']"), "what lies below")
    page.one(".row.summary .row-text").click()
    page.until(lambda: page.all(".node .part"), "the node")
    page.ask("violin lessons")
    page.until(lambda: page.all(".hit"), "hits")
    assert [each.get_attribute("value") for each in page.elements("#strategy option")] == list(strategies_for(structure))
    for strategy in strategies_for(structure):
        page.run(CHOOSE, strategy)
        page.until(partial(answered, page, strategy), f"an answer by {strategy}")
        page.until(lambda: page.all(".hit"), "its hits")
    assert page.complaints() == []
    # Written to by the service, which has another structure for new trees.
    service.put(structure, [{"id": "late", "text": "violin lessons begin again"}])
    page.says("[data-figure=items]", str(COUNT + 1))
    assert service.get(f"trees/{structure}")["structure"] == structure

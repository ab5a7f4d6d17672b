"""Takes the pictures of the page in docs/images: `python -m docs.images.screens` (Chromium is needed: `make services`)."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from tests.e2e.browsing import Page, page_service
from tests.servers.browser import chromium, colours, sized

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "examples" / "data"
WIDE, HIGH = 1360, 820
MOVING = 1.0
"""Seconds that anything on the page moves."""


def main() -> None:
    """Grow the example trees and look at them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        chromium(width=WIDE, height=HIGH) as driver,
        page_service(Path(folder), BANYAN_AUTH="off", BANYAN_EMBEDDER="local") as service,
    ):
        for name in ("turns", "news"):
            for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                service.put(record.pop("tree"), [record])
        page = Page(driver, service.url)
        page.until(lambda: service.get("trees/demo-chats")["pending"] == 0, "every summary")
        _take(page)


def _take(page: Page) -> None:
    def kept(name: str) -> None:
        page.run("document.activeElement.blur(); document.getElementById('tip').hidden = true")
        page.until(lambda: page.run("return document.querySelectorAll('.waiting').length") == 0, "all that is read")
        time.sleep(MOVING)
        (HERE / f"page-{name}.png").write_bytes(page.driver.get_screenshot_as_png())

    colours(page.driver, "light")
    page.open("#/t/demo-chats")
    page.until(lambda: page.all(".arc"), "the map")
    page.ask("Who plays the cello?")
    page.until(lambda: page.all(".hit"), "hits")
    kept("search")

    colours(page.driver, "dark")
    page.one(".hit").click()
    page.one("#why").click()
    page.until(lambda: page.all(".route .step"), "how it was placed")
    kept("why")

    colours(page.driver, "light")
    sized(page.driver, 390, 844, touch=True)
    page.open("#/t/demo-chats")
    page.until(lambda: page.all(".arc"), "the map")
    page.run("document.querySelector('.arc.l2').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    page.one(".picked button")
    kept("phone")


if __name__ == "__main__":
    main()

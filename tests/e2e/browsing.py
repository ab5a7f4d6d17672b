"""A service of its own for the page, and a browser that looks at it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.e2e.commands import ENVIRONMENT, ROOT

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver
    from selenium.webdriver.remote.webelement import WebElement

PATIENCE = 150.0  # seconds
T = TypeVar("T")


class PageService:
    """`banyan serve` in a process, which may be ended and begun again at the same address."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        own = {name: value for name, value in os.environ.items() if not name.startswith(("BANYAN_", "OPENAI_"))}
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.environment = {**own, **ENVIRONMENT, "PYTHONPATH": path, **variables}
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://localhost:{self.port}"

    def start(self) -> None:
        """Begin, at the address of the time before if there was one."""
        command = [sys.executable, "-m", "streams.cli", "serve", "--port", str(self.port), "--json"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "log").read_text()
        self.port = int(json.loads(line)["url"].rpartition(":")[2])

    def stop(self) -> None:
        """End, and wait for it."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def put(self, tree: str, records: Sequence[dict[str, Any]]) -> None:
        """Give it records: documents if they have a title."""
        for kind in ("turns", "documents"):
            some = [each for each in records if ("title" in each) == (kind == "documents")]
            if some:
                answer = httpx.post(f"{self.url}/v1/trees/{tree}/{kind}", json=some, timeout=PATIENCE)
                assert answer.status_code == 202, answer.text

    def get(self, path: str, **query: str | int) -> Any:
        """What it answers."""
        return httpx.get(f"{self.url}/v1/{path}", params=query, timeout=PATIENCE).raise_for_status().json()

    def command(self, *arguments: str) -> Any:
        """What `banyan … --json` says in the service's folder."""
        command = [sys.executable, "-m", "streams.cli", *arguments, "--json"]
        said = subprocess.run(command, cwd=self.folder, env=self.environment, check=True, stdout=subprocess.PIPE).stdout
        return json.loads(said.splitlines()[-1])


@contextmanager
def page_service(folder: Path, **variables: str) -> Iterator[PageService]:
    """A service for as long as the block lasts."""
    service = PageService(folder, **variables)
    try:
        service.start()
        yield service
    finally:
        service.stop()


class Seen:
    """
    An element of the page, which may be drawn anew between being found and being asked.

    Then the one that stands in its place is: that of the same number among those that a selector finds and that are seen.
    """

    def __init__(self, page: Page, selector: str, number: int, element: WebElement) -> None:
        self._page = page
        self._selector = selector
        self._number = number
        self._element = element

    @property
    def text(self) -> str:
        """What it says."""
        return str(self._do(lambda element: element.text))

    def click(self) -> None:
        """Click on it."""
        self._do(lambda element: element.click())

    def send_keys(self, *keys: str) -> None:
        """Type into it."""
        self._do(lambda element: element.send_keys(*keys))

    def clear(self) -> None:
        """Empty it."""
        self._do(lambda element: element.clear())

    def is_displayed(self) -> bool:
        """Whether it is seen."""
        return bool(self._do(lambda element: element.is_displayed()))

    def get_attribute(self, name: str) -> str | None:
        """An attribute's value."""
        value: str | None = self._do(lambda element: element.get_attribute(name))
        return value

    def _do(self, act: Callable[[WebElement], T]) -> T:
        from selenium.common.exceptions import StaleElementReferenceException  # noqa: PLC0415

        end = time.monotonic() + PATIENCE
        while True:
            try:
                return act(self._element)
            except StaleElementReferenceException:
                again = self._page.elements(self._selector)
                if len(again) <= self._number or time.monotonic() > end:
                    raise
                self._element = again[self._number]


class Page:
    """What a person sees and does."""

    def __init__(self, driver: WebDriver, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, place: str = "#/") -> None:
        """Go to a place, as one who has just opened the browser."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/{place}")

    def all(self, selector: str) -> list[Seen]:
        """Elements that are seen, all at one moment."""
        return [Seen(self, selector, number, each) for number, each in enumerate(self.elements(selector))]

    def elements(self, selector: str) -> list[WebElement]:
        """The same as the driver has them: each may be gone in the next moment."""
        from selenium.common.exceptions import StaleElementReferenceException  # noqa: PLC0415

        end = time.monotonic() + PATIENCE
        while True:
            found: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, selector)
            try:
                return [each for each in found if each.is_displayed()]
            except StaleElementReferenceException:
                assert time.monotonic() < end, f"is drawn anew again and again: {selector}"

    def one(self, selector: str) -> Seen:
        """The first element; waits for it."""
        return self.until(lambda: next(iter(self.all(selector)), None), selector)

    def text(self, selector: str) -> str:
        """What the first element says."""
        return str(self.one(selector).text)

    def until(self, found: Callable[[], T | None], what: str) -> T:
        """Wait for something, for as long as a busy machine may take."""
        from selenium.common.exceptions import StaleElementReferenceException  # noqa: PLC0415

        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                value = found()
            except StaleElementReferenceException:
                value = None
            if value:
                return value
            time.sleep(0.03)
        raise AssertionError(f"did not come: {what}; the page says: {self.driver.find_element(By.TAG_NAME, 'body').text[:2000]}")

    def says(self, selector: str, words: str) -> None:
        """Wait until an element says something."""
        self.until(lambda: any(words in each.text for each in self.all(selector)), f"{words!r} in {selector}")

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains  # noqa: PLC0415

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def ask(self, query: str) -> None:
        """Search."""
        field = self.one("#query")
        field.clear()
        field.send_keys(query, Keys.ENTER)

    def run(self, script: str, *values: object) -> Any:
        """What a script gives."""
        return self.driver.execute_script(script, *values)

    @property
    def place(self) -> str:
        """What the address says after the host."""
        return str(self.run("return location.pathname + location.search + location.hash"))

    @property
    def focused(self) -> str:
        """What has the focus: its id, or its text."""
        return str(self.run("const at = document.activeElement; return at.id || at.dataset.id || at.textContent"))

    def complaints(self) -> list[str]:
        """What the console has said since it was asked before, other than of requests that were refused."""
        entries = self.driver.get_log("browser")
        return [each["message"] for each in entries if each["level"] in ("SEVERE", "WARNING") and each.get("source") != "network"]

    def findings(self) -> list[str]:
        """Serious and critical findings of axe-core, of what is seen now."""
        if not self.run("return Boolean(window.axe)"):
            self.run(_axe())
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            # What makes up the picture is hidden from readers: the picture has a role and a name of its own.
            "axe.run({exclude: [['.rings > g']]}, {resultTypes: ['violations']})"
            ".then((all) => done(all.violations), (error) => done(String(error)))"
        )
        assert isinstance(found, list), found
        return [
            f"{each['id']} ({each['impact']}): {each['help']}: {[node['target'] for node in each['nodes']][:5]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]


def _axe() -> str:
    """axe-core, as the package of the lock has it; the package's own code is for another driver."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")

"""Chromium without a window, driven through chromedriver; both from Debian's packages."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.local.servers import ServerMissingError

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium.chromedriver")
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--lang=en",
)


def programs() -> tuple[str, str]:
    """
    Paths of the browser and its driver.

    Raises:
        ServerMissingError: one is not there.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = next(filter(None, map(shutil.which, DRIVERS)), None)
    if browser is None or driver is None:
        raise ServerMissingError(
            "chromium and chromedriver are needed to look at the page: `make services` (chromium, chromium-driver)"
        )
    return browser, driver


@contextmanager
def chromium(*, width: int = 1440, height: int = 900, scale: float = 1.0) -> Iterator[WebDriver]:
    """
    A browser with a profile of its own; its console is kept, and every request it makes.

    Args:
        width, height: of the page, in CSS pixels.
        scale: device pixels a CSS pixel.

    Raises:
        ServerMissingError: there is none.
    """
    from selenium import webdriver  # noqa: PLC0415
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    program, driver_program = programs()
    with tempfile.TemporaryDirectory(prefix="banyan-browser-", ignore_cleanup_errors=True) as profile:
        options: Any = webdriver.ChromeOptions()
        options.binary_location = program
        for switch in (*SWITCHES, f"--user-data-dir={profile}", f"--force-device-scale-factor={scale}"):
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(
            options=options, service=Service(executable_path=driver_program, log_output=str(Path(profile) / "log"))
        )
        try:
            sized(driver, width, height)
            driver.set_page_load_timeout(180)
            driver.set_script_timeout(180)
            yield driver
        finally:
            driver.quit()


def sized(driver: WebDriver, width: int, height: int, *, touch: bool = False) -> None:
    """Give the page a size, as a screen of another device would have."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 0, "mobile": touch}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": touch})


def colours(driver: WebDriver, scheme: str) -> None:
    """What the system prefers: `light` or `dark`."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

"""A headless Chromium that opens reports from disk and keeps what it logged and requested."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--window-size=1280,900",
)  # fmt: skip
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install '.[test]'")
    from selenium.webdriver.chrome.service import Service

    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    control = shutil.which("chromedriver")
    if not browser or not control:
        pytest.skip("no Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(control))
    yield started
    started.quit()


class Report:
    """One report in the browser."""

    def __init__(self, driver, path: Path) -> None:
        self.driver = driver
        self.path = path
        self.requests: list[str] = []
        self.problems: list[str] = []

    def open(self, place: str = "") -> Report:
        """Load the file anew, at `#place`."""
        self.driver.get("about:blank")
        self.gather()
        self.requests.clear()
        self.driver.get(self.path.as_uri() + place)
        return self

    def gather(self) -> None:
        """Take over what the browser requested and complained about since."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                self.requests.append(message["params"].get("request", message["params"])["url"])
        self.problems += [entry["message"] for entry in self.driver.get_log("browser")]

    def assert_quiet(self) -> None:
        """Nothing was asked for but the file itself, nothing complained, nothing ran that is not the report's own."""
        self.gather()
        assert {url.split("#")[0] for url in self.requests} <= {self.path.as_uri(), "data:,"}
        assert not self.problems
        assert not self.run("return performance.getEntriesByType('resource').map(e => e.name)")
        assert self.run("return window.hacked") is None

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector)

    def wait(self, condition, seconds: float = 20):
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, seconds, poll_frequency=0.05).until(lambda _: condition())

    def set_width(self, width: int, *, dark: bool = False) -> None:
        """A desktop or a phone, light or dark."""
        command = self.driver.execute_cdp_cmd
        shape = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 700}
        command("Emulation.setDeviceMetricsOverride", shape)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        command("Emulation.setEmulatedMedia", {"features": [scheme]})

    def picture(self, name: str) -> None:
        """A screenshot into the folder of HOPTEAM_SCREENSHOTS, when somebody wants to look."""
        if folder := os.environ.get("HOPTEAM_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@pytest.fixture
def report(driver):
    """`report(path)` opens a report; at the end it must have been quiet."""
    opened: list[Report] = []

    def open_report(path: Path, place: str = "") -> Report:
        opened.append(Report(driver, Path(path)).open(place))
        opened[-1].set_width(1280)
        return opened[-1]

    yield open_report
    for each in opened[-1:]:
        each.assert_quiet()

"""A real browser without a screen: Debian's chromium, driven by selenium through its chromedriver.

Neither may load anything: selenium is told where the driver is, and the browser's own services are
off. Each browser has a profile of its own, which goes with it.
"""

import base64
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

T = TypeVar("T")
CHROMIUM, DRIVER = "chromium", "chromedriver"  # programs on PATH (sandbox/packages.py)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)


class Browser:
    """One browser with one page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self._messages: list[dict[str, Any]] = []

    def open(self, address: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window whose inside has that size."""
        self.set_size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get(address)

    def set_size(self, width: int, height: int) -> None:
        """The size of the page, in CSS pixels; as a phone below 500."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def command(self, name: str, **options: Any) -> dict[str, Any]:
        """A command of Chrome's DevTools."""
        return cast(dict[str, Any], self.driver.execute_cdp_cmd(name, options))

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function's body returns in the page."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "body") -> str:
        """What people see of the first element, without empty lines; empty where there is none."""
        script = (
            "const found = document.querySelector(arguments[0]);"
            "return found?.checkVisibility() ? found.innerText : ''"
        )
        shown = self.run(script, selector)
        return re.sub(r"\s*\n\s*", "\n", str(shown)).strip()

    def label(self, selector: str) -> str:
        """What the first element says of itself to those who do not see it; empty: not there."""
        script = "return document.querySelector(arguments[0])?.getAttribute('aria-label') ?? ''"
        return str(self.run(script, selector))

    def wait(self, what: str, ask: Callable[[], T], limit_seconds: float = 60) -> T:
        """The first true answer of `ask`; the test fails and shows the page if none comes."""
        deadline = time.monotonic() + limit_seconds
        while not (answer := ask()):
            assert time.monotonic() < deadline, (
                f"waited {limit_seconds:.0f} s for {what}; the page shows:\n{self.text()[:2500]}\n"
                f"{self.complaints()}"
            )
            time.sleep(0.1)
        return answer

    def click(self, selector: str) -> None:
        """Press the first element."""
        self.driver.find_element("css selector", selector).click()

    def press(self, key: str) -> None:
        """Press a key, such as TAB, where the focus is."""
        ActionChains(self.driver).send_keys(getattr(Keys, key)).perform()

    def forget(self) -> None:
        """Forget the requests that were sent so far."""
        self.driver.get_log("performance")
        self._messages.clear()

    def complaints(self) -> list[str]:
        """What the browser's console has said since the last call, violations of policies too."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def hosts(self) -> set[str]:
        """Hosts and ports that the page has sent requests to since it was opened."""
        for entry in self.driver.get_log("performance"):
            self._messages.append(json.loads(entry["message"])["message"])
        sent = [m["params"] for m in self._messages if m["method"] == "Network.requestWillBeSent"]
        found = {urlsplit(each["request"]["url"]) for each in sent}
        return {url.netloc for url in found if url.scheme not in ("data", "blob", "chrome")}

    def picture(self) -> bytes:
        """The whole page as PNG."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        made = self.command("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(made["data"])


def found(program: str) -> str:
    """Where a program is."""
    path = shutil.which(program)
    assert path, f"there is no {program}: python3 -m sandbox setup --for-tests installs it"
    return path


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser; nothing of it is left at the end."""
    with tempfile.TemporaryDirectory(prefix="disttrain-browser-") as profile:
        options = Options()
        options.binary_location = found(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(executable_path=found(DRIVER)))
        try:
            yield Browser(driver)
        finally:
            driver.quit()

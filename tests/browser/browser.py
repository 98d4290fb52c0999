"""A real browser without a screen: Debian's chromium, driven by selenium through its chromedriver.

Neither may download anything: selenium is told where the driver is, and the browser's own services
are off. Each browser has a profile of its own, which is removed with it.
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
        """Open a page in a window whose content has this size, in CSS pixels."""
        self.set_size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get(address)

    def set_size(self, width: int, height: int) -> None:
        """Set the size of the page, in CSS pixels; a width below 500 makes it a phone."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def command(self, name: str, **options: Any) -> dict[str, Any]:
        """Run a command of Chrome's DevTools, and return its result."""
        return cast(dict[str, Any], self.driver.execute_cdp_cmd(name, options))

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a JavaScript function in the page, and return its result."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "body") -> str:
        """Return the visible text of the first matching element, without empty lines; or an empty
        text.
        """
        script = (
            "const found = document.querySelector(arguments[0]);"
            "return found?.checkVisibility() ? found.innerText : ''"
        )
        shown = self.run(script, selector)
        return re.sub(r"\s*\n\s*", "\n", str(shown)).strip()

    def label(self, selector: str) -> str:
        """Return the label for screen readers (aria-label) of the first matching element; or an
        empty text.
        """
        script = "return document.querySelector(arguments[0])?.getAttribute('aria-label') ?? ''"
        return str(self.run(script, selector))

    def wait(self, what: str, ask: Callable[[], T], limit_seconds: float = 60) -> T:
        """Return the first true answer of `ask`; the test fails and shows the page if none
        comes.
        """
        deadline = time.monotonic() + limit_seconds
        while not (answer := ask()):
            assert time.monotonic() < deadline, (
                f"waited {limit_seconds:.0f} s for {what}; the page shows:\n{self.text()[:2500]}\n"
                f"{self.complaints()}"
            )
            time.sleep(0.1)
        return answer

    def click(self, selector: str) -> None:
        """Click the first matching element."""
        self.driver.find_element("css selector", selector).click()

    def press(self, key: str) -> None:
        """Press a key, such as TAB, where the focus is."""
        ActionChains(self.driver).send_keys(getattr(Keys, key)).perform()

    def forget(self) -> None:
        """Forget the requests that the page has sent so far, so that `hosts` ignores them."""
        self.driver.get_log("performance")
        self._messages.clear()

    def complaints(self) -> list[str]:
        """Return the messages in the browser's console since the last call, with policy
        violations.
        """
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def hosts(self) -> set[str]:
        """Return the hosts and ports of all requests of the page, without those before a
        `forget`.
        """
        for entry in self.driver.get_log("performance"):
            self._messages.append(json.loads(entry["message"])["message"])
        sent = [m["params"] for m in self._messages if m["method"] == "Network.requestWillBeSent"]
        found = {urlsplit(each["request"]["url"]) for each in sent}
        return {url.netloc for url in found if url.scheme not in ("data", "blob", "chrome")}

    def picture(self) -> bytes:
        """Return the whole page as PNG."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        made = self.command("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(made["data"])


def found(program: str) -> str:
    """Return the path of a program, which must be installed."""
    path = shutil.which(program)
    assert path, f"there is no {program}: python3 -m sandbox setup --for-tests installs it"
    return path


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser during the block; it is removed with its profile afterwards."""
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

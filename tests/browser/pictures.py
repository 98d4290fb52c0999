"""Makes the pictures of the page in docs/: `.venv-dev/bin/python -m tests.browser.pictures`.

The page and the browser are the real ones. They show the made-up run of the tests, because it has
everything that the page can show: a slow rank, a fast network, and a save that training waits for.
"""

import io
from datetime import UTC, datetime
from pathlib import Path

from PIL import Image

from cli.dashboard.details import log_of
from cli.dashboard.server import serving
from tests.browser.browser import Browser, browser
from tests.browser.recorded import SEEN, Recorded, lines, status

DOCS = Path(__file__).parents[2] / "docs"
COLOURS = 64  # makes the file a third of the size
SAVING = "checkpoint step 2860 is being written, and training waits for it"


def take(window: Browser, recorded: Recorded, width: int, dark: bool) -> bytes:
    """Return a picture of the whole page as PNG, with a sample of the run and lines of the last
    minute.
    """
    recorded.parts["logs"] = {**SEEN, "content": log_of(lines(datetime.now(UTC)), [])}
    with serving(0, recorded) as server:
        window.open(server.address, width, 844, dark)
        for chart in ("#loss-chart", "#speed-chart"):
            window.wait("the curves", lambda chart=chart: window.label(chart))
        window.wait("the ranks and lines", lambda: window.text("#ranks") and window.text("#lines"))
        window.click("#write")
        window.wait("the sample", lambda: window.text("#sample pre"))
        window.run(
            "document.activeElement.blur(); document.querySelector('#ranks').scrollTop = 1e6"
        )
        made = window.picture()
        window.driver.get("about:blank")
    few = Image.open(io.BytesIO(made)).convert("RGB").quantize(COLOURS)
    output = io.BytesIO()
    few.save(output, "PNG", optimize=True)
    return output.getvalue()


def main() -> None:
    """Write both pictures."""
    saving = Recorded(status=status("saving", SAVING))
    with browser() as window:
        for name, recorded, width, dark in (
            ("dashboard-1280-light.png", Recorded(), 1280, False),
            ("dashboard-390-dark.png", saving, 390, True),
        ):
            (DOCS / name).write_bytes(take(window, recorded, width, dark))


if __name__ == "__main__":
    main()

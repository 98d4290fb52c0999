"""`./disttrain dashboard` as people run it, for a test that looks at its page."""

import io
import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType

from PIL import Image

from sandbox.stack import Stack
from tests.browser.browser import Browser

PICTURES = os.environ.get("DISTTRAIN_PICTURES", "")  # a folder: the pictures of docs/ are made so


class Dashboard:
    """The command, from its first line to its end."""

    def __init__(self, stack: Stack, scratch: Path) -> None:
        self._said = (scratch / "dashboard.txt").open("w+")
        command = ["./disttrain", "dashboard", "--stack", stack.name, "--port", "0"]
        self.process = subprocess.Popen(
            command,
            cwd=stack.project,
            env=stack.environment,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert "The runs are shown at http://127.0.0.1:" in line, line + self.said()
        self.address = line.split()[5].rstrip(";")

    def said(self) -> str:
        """What it has printed as errors."""
        self._said.seek(0)
        return self._said.read()

    def end(self) -> int:
        """SIGTERM, as of a closed session; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def __enter__(self) -> "Dashboard":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.end()
        assert self.process.stdout
        self.process.stdout.close()
        self._said.close()


def take_pictures(seen: Browser, address: str) -> None:
    """The pictures of the docs, where a folder for them is named."""
    for width, dark in ((1280, False), (390, True)) if PICTURES else ():
        seen.open(address, width, 844, dark)
        seen.wait("the lines", lambda: seen.text("#lines"))
        seen.click("#write")  # it was written before: this comes at once
        seen.wait("the sample", lambda: seen.text("#sample pre") and seen.text("#ranks tbody"))
        name = f"dashboard-{width}-{'dark' if dark else 'light'}.png"
        few = Image.open(io.BytesIO(seen.picture())).convert("RGB").quantize(64)
        few.save(Path(PICTURES) / name, optimize=True)  # a third of the bytes

"""Runs `./disttrain dashboard` as a user does, for tests of its page."""

import signal
import subprocess
from pathlib import Path
from types import TracebackType

from sandbox.stack import Stack


class Dashboard:
    """The running command; the address of its page comes from its first line."""

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
        """Return what the command has printed to its standard error."""
        self._said.seek(0)
        return self._said.read()

    def end(self) -> int:
        """End the command by SIGTERM, as a closed session does, and return its exit status."""
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

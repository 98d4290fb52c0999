"""A real S3 server on this machine: versitygw, which keeps objects as files in a folder."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from sandbox.toolchain import tool_folder
from sandbox.tools.services import S3_SERVER
from tests.ports import free_port

KEY, SECRET = "tests", "a-password-of-the-tests"


class S3Server:
    """The running server. Each of its buckets is a folder in `buckets`."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.buckets = folder / "buckets"
        self.buckets.mkdir(parents=True)
        self.address = (host, free_port())
        self._log = folder / "versitygw.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    str(tool_folder(S3_SERVER) / "versitygw"),
                    *("--port", f"{host}:{self.address[1]}"),
                    *("--access", KEY, "--secret", SECRET, "--quiet"),
                    *("posix", str(self.buckets)),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def make_bucket(self, name: str) -> None:
        """Make a bucket, which is a folder."""
        (self.buckets / name).mkdir()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(self.address, timeout=5):
                return True
        except OSError:
            return False

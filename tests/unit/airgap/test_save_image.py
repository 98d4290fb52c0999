"""How an image of a registry is saved with a tool of this machine, for which a stand-in is used."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.airgap.save_image import save_image


def test_slow_network_has_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image may be saved for any length of time. The operator's images have gigabytes, and with
    a limit `make bundle` would end with a traceback and begin the image anew the next time. The
    stand-in takes longer than any limit.
    """

    def run_slowly(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        if limit := options.get("timeout"):
            raise subprocess.TimeoutExpired(command, limit)
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(subprocess, "run", run_slowly)
    save_image("skopeo", "nvcr.io/nvidia/driver:1", tmp_path / "driver.tar", "amd64")

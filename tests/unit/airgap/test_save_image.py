"""How an image of a registry is saved with a tool of this machine."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.airgap.save_image import save_image


def test_slow_network_has_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's images have gigabytes. After an hour, `make bundle` ended with a traceback,
    and the next one began the image anew. The stand-in needs longer than any limit."""

    def run_slowly(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        if limit := options.get("timeout"):
            raise subprocess.TimeoutExpired(command, limit)
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(subprocess, "run", run_slowly)
    save_image("skopeo", "nvcr.io/nvidia/driver:1", tmp_path / "driver.tar", "amd64")

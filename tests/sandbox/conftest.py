"""The programs that the sandbox's tests use: the pinned ones, or those of `$DISTTRAIN_BIN`."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.imaging import parts
from infra.imaging.containerd import Containerd
from sandbox.cluster_commands import programs
from sandbox.image_archive import image_archive
from sandbox.toolchain import go_program
from tests.sandbox.image_lab import Lab, image_lab, running_containerd

PROBE_SOURCE = Path(__file__).parent / "probe"
PROBE_IMAGE = "localhost/disttrain/probe:test"


@pytest.fixture(scope="session")
def bin_dir() -> Path:
    return programs()


@pytest.fixture(scope="session")
def probe_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with the image `PROBE_IMAGE`: one static program, see `probe/main.go`."""
    folder = tmp_path_factory.mktemp("probe")
    subprocess.run(
        [go_program(), "build", "-trimpath", "-ldflags=-s -w", "-o", str(folder / "probe"), "."],
        cwd=PROBE_SOURCE,
        env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""},
        check=True,
    )
    archive = folder / "probe.tar"
    archive.write_bytes(image_archive(folder / "probe", PROBE_IMAGE))
    return archive


@pytest.fixture(scope="module")
def containerd() -> Iterator[Containerd]:
    with running_containerd() as client:
        yield client


@pytest.fixture
def transfers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """What transfers have left on the node, whose folder for them is the test's own."""
    base = tmp_path / "import"
    monkeypatch.setattr(parts, "BASE", str(base))
    return lambda: sorted(Path(f"{base}-{os.geteuid()}").glob("*"))


@pytest.fixture
def lab(containerd: Containerd, tmp_path: Path) -> Iterator[Lab]:
    with image_lab(containerd, tmp_path) as made:
        yield made

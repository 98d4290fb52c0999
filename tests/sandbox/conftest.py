"""Fixtures of the sandbox's tests, with the pinned programs or those of `$DISTTRAIN_BIN`."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.image import parts
from infra.image.containerd import Containerd
from sandbox.cluster_commands import programs
from sandbox.go_build import go_program
from sandbox.image_archive import image_archive
from sandbox.pulumi_home import pulumi_environment
from sandbox.tools.cluster import COMMAND_PROVIDER
from sandbox.venvs import ensure_venv
from tests.cli.servers import free_port
from tests.sandbox.cluster_lab import Machine, machine
from tests.sandbox.command_lab import (
    PLUGIN_VARIABLE,
    Engine,
    SshServer,
    Stack,
    install_plugin,
    make_fresh,
)
from tests.sandbox.image_lab import Lab, image_lab, running_containerd

PROBE_SOURCE = Path(__file__).parent / "probe"
PROBE_IMAGE = "localhost/disttrain/probe:test"


@pytest.fixture(scope="session")
def bin_dir() -> Path:
    """Return the folder with the cluster's programs."""
    return programs()


@pytest.fixture(scope="session")
def probe_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive with the image `PROBE_IMAGE`, which has one static program
    (`probe/main.go`).
    """
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
    """Yield a client of a containerd that runs for this test file."""
    with running_containerd() as client:
        yield client


@pytest.fixture
def transfers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """Return a function that lists the files that transfers have left in the test's own folder."""
    base = tmp_path / "import"
    monkeypatch.setattr(parts, "BASE", str(base))
    return lambda: sorted(Path(f"{base}-{os.geteuid()}").glob("*"))


@pytest.fixture
def lab(containerd: Containerd, tmp_path: Path) -> Iterator[Lab]:
    """Yield a lab for one test's images; what they left is removed afterwards."""
    with image_lab(containerd, tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Return the engine with the toolchain's command plugin, or with
    `$DISTTRAIN_COMMAND_PLUGIN`.
    """
    folder = tmp_path_factory.mktemp("engine")
    given = pulumi_environment(folder / "state", ensure_venv(".venv"))
    environment = {key: value for key, value in given.items() if key != "SSH_AUTH_SOCK"}
    pulumi = shutil.which("pulumi", path=environment["PATH"])
    assert pulumi
    engine = Engine(pulumi, environment, folder / "fresh")
    if plugin := os.environ.get(PLUGIN_VARIABLE):
        home = folder / "home"
        home.mkdir()
        install_plugin(Path(plugin), COMMAND_PROVIDER, home, engine)
        engine.environment["PULUMI_HOME"] = str(home)
    make_fresh(engine)
    return engine


@pytest.fixture
def stack(engine: Engine, tmp_path: Path) -> Iterator[Stack]:
    """Yield a new stack; its engines, plugins and commands are ended afterwards."""
    made = Stack(engine, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def ssh_files(tmp_path_factory: pytest.TempPathFactory) -> SshServer:
    """Return an SSH server with its keys and settings, which does not run yet."""
    return SshServer.prepare(tmp_path_factory.mktemp("ssh"), free_port())


@pytest.fixture
def stopped_ssh(ssh_files: SshServer) -> Iterator[SshServer]:
    """Yield an SSH server that the test itself starts, and stop it afterwards."""
    yield ssh_files
    ssh_files.stop()


@pytest.fixture
def ssh(stopped_ssh: SshServer) -> SshServer:
    """Return a running SSH server."""
    stopped_ssh.start()
    return stopped_ssh


@pytest.fixture(scope="module")
def state_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the state folder of the clusters of a test file."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def before(state_root: Path) -> Machine:
    """Return what is on this machine before the clusters of a test file are made."""
    return machine(state_root)

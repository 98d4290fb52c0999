import os
import subprocess
from collections.abc import Iterator

import pytest

from sandbox.cache import locked
from sandbox.cluster import Cluster
from sandbox.cluster_commands import programs
from sandbox.go_build import go_program
from sandbox.image_archive import image_archive
from tests.gate import Gate
from tests.kube.installed import Installed, install
from tests.kube.kueue import make_kueue_kinds
from tests.kube.lab import PROBE_IMAGE, PROJECT, Lab, Run
from tests.kube.python_image import import_image, python_image
from tests.kube.volume import run_with_claim

NAME = "kube-test"


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a new cluster that has the image of `tests/sandbox/probe` and one with Python.

    The cluster and all its data are removed afterwards.
    """
    program = tmp_path_factory.mktemp("probe") / "probe"
    subprocess.run(
        [go_program(), "build", "-trimpath", "-ldflags=-s -w", "-o", str(program), "."],
        cwd=PROJECT / "tests" / "sandbox" / "probe",
        env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""},
        check=True,
    )
    with locked(f"{NAME}-cluster"):
        cluster = Cluster(NAME, programs())
        cluster.down(purge=True)
        cluster.up()
        try:
            import_image(cluster, image_archive(program, PROBE_IMAGE))
            import_image(cluster, python_image())
            yield Lab(cluster)
        finally:
            cluster.down(purge=True)


@pytest.fixture(scope="package")
def kueue(lab: Lab) -> Lab:
    """Return the lab's cluster once it serves Kueue's kinds. Kueue's controller does not run."""
    make_kueue_kinds(lab)
    return lab


@pytest.fixture
def gate(lab: Lab) -> Iterator[Gate]:
    """Yield a gate in front of the API server, which a test can close and open. It is closed
    afterwards.
    """
    assert lab.cluster.node_ip
    made = Gate((lab.cluster.node_ip, 6443))
    yield made
    made.close()


@pytest.fixture
def claim(lab: Lab) -> Run:
    """Return a run whose namespace has a claim on a folder of the node."""
    return run_with_claim(lab)


@pytest.fixture
def installed(lab: Lab) -> Iterator[Installed]:
    """Yield JobSet's definition and its namespace, as a platform's stack would leave them."""
    with install(lab) as made:
        yield made

"""Fixtures of the end-to-end tests: a cluster with the trainer image, and checks of leftovers."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from infra.image.plan import ImagePlan, plan_image
from sandbox.cache import locked
from sandbox.cluster import Cluster
from sandbox.dataset import training_text
from sandbox.toolchain import bin_dir
from sandbox.venvs import PROJECT
from tests.e2e.controllers import traces
from tests.e2e.lab import Lab
from tests.e2e.linked_store import link_store
from tests.e2e.remote_node import RemoteNode

IMAGES = "e2e"  # name of the cluster that keeps the image between runs; it is down between tests
KEPT = "localhost/disttrain-e2e/kept:latest"


def planned_image() -> ImagePlan:
    """Return the plan of the image that the stacks of these tests ask for."""
    settings = yaml.safe_load((PROJECT / "Pulumi.sandbox.yaml").read_text())["config"]
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())["config"]
    repository = project["imageRepository"]["default"]
    return plan_image(PROJECT, repository, settings["disttrain:imageBase"], None)


def build_image(lab: Lab) -> None:
    """Build the image if the lab's containerd does not have it.

    A stack would build it too. But some stacks of these tests have a proxy that does not exist in
    their settings, and their build would fail.
    """
    plan = planned_image()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "infra.image", "ensure", "--ctr", "ctr"),
            *("--repository", plan.repository),
            *("--base-image", plan.base_image),
            f"--address={lab.cluster.containerd_address}",
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # No `destroy` removes this second name, so the gigabytes are imported only once.
    image = json.loads(done.stdout.splitlines()[-1])["image"]
    lab.ctr("images", "tag", "--force", image, KEPT)


def cluster_with_image(name: str, scratch: Path) -> Cluster:
    """Return a cluster that is down, and whose store has at least the image of the dependencies.

    The gigabytes are imported once, into the store of the cluster `IMAGES`. Each worker has a
    cluster of its own, which gets a copy of that store by hard links.
    """
    images = Cluster(IMAGES, bin_dir())
    cluster = Cluster(name, bin_dir())
    cluster.down(purge=True)
    with locked(f"{IMAGES}-cluster"):
        noted = images.layout.root / "dependencies"
        wanted = planned_image().deps_hash
        if not noted.exists() or noted.read_text() != wanted:
            images.up()
            try:
                build_image(Lab(images, scratch, training_text().path))
            finally:
                images.down()
            noted.write_text(wanted)
        cluster.layout.root.mkdir(parents=True, exist_ok=True)
        link_store(images.layout.containerd_store, cluster.layout.containerd_store)
    return cluster


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a running cluster of this worker with the trainer image; it is removed at the end."""
    name = f"e2e-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    scratch = tmp_path_factory.mktemp("e2e")
    with locked(f"{name}-cluster"):
        cluster = cluster_with_image(name, scratch)
        try:
            cluster.up()
            made = Lab(cluster, scratch, training_text().path)
            build_image(made)
            _labs.append(made)
            yield made
        finally:
            _labs.clear()
            cluster.down(purge=True)


_labs: list[Lab] = []


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that a test file leaves no object in the cluster, so that one failure causes no other.

    The file's runs are removed from the data folder, because a run of the same name in another file
    would continue them.

    If objects are left, the cluster is removed and the next file gets a new one. If all tests of
    the file have passed, the objects are a failure of their own.
    """
    failed_before = request.session.testsfailed
    yield
    for lab in _labs:  # one lab, or none yet
        try:
            left = lab.left()
        except (AssertionError, ValueError) as error:  # the API server does not answer
            left = [str(error)]
        if left:
            lab.cluster.down(purge=True)
            cluster_with_image(lab.cluster.layout.name, lab.scratch)
            lab.scratch = Path(tempfile.mkdtemp(dir=lab.scratch))
            lab.cluster.up()
            build_image(lab)
            assert request.session.testsfailed > failed_before, f"this file has left {left}"
        for folder in ("runs", "mirror"):
            shutil.rmtree(lab.cluster.data_root / folder, ignore_errors=True)


@pytest.fixture(scope="module")
def before(lab: Lab) -> dict[str, str]:
    """Return the traces of controllers (`traces`) in the cluster before any platform is made."""
    return traces(lab)


@pytest.fixture(scope="module")
def remote(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteNode]:
    """Yield a host behind sshd whose k3s is a stand-in in front of this lab's cluster."""
    made = RemoteNode(lab, tmp_path_factory.mktemp("remote"))
    try:
        yield made
    finally:
        made.close()

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
    """The image that the stacks of these tests ask for."""
    settings = yaml.safe_load((PROJECT / "Pulumi.sandbox.yaml").read_text())["config"]
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())["config"]
    repository = project["imageRepository"]["default"]
    return plan_image(PROJECT, repository, settings["disttrain:imageBase"], None)


def build_image(lab: Lab) -> None:
    """The image, if it is not cached: the stacks name a proxy that no build could go through."""
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
    # a second name, which no `destroy` knows: gigabytes are imported once, not by each stack
    image = json.loads(done.stdout.splitlines()[-1])["image"]
    lab.ctr("images", "tag", "--force", image, KEPT)


def cluster_with_image(name: str, scratch: Path) -> Cluster:
    """A cluster that is down and whose store has the image of the dependencies, at least.

    The gigabytes are imported once, into the store of the cluster `IMAGES`. Each worker has a
    cluster of its own, which gets a linked copy of that store.
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
    """A cluster of this worker's own with the image in it; nothing of it is left at the end."""
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
    """A file leaves nothing of ours in the cluster, so that one failure stays one failure.

    Its runs are removed from the data folder: one of the same name in another file would continue
    them.

    Where a test has failed, what it has left goes with the cluster, and the next file gets a new
    one. Left by tests that have all passed, it is a failure of its own.
    """
    failed_before = request.session.testsfailed
    yield
    for lab in _labs:  # one, or none as yet
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
    """What the cluster has before any platform."""
    return traces(lab)


@pytest.fixture(scope="module")
def remote(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteNode]:
    """A host behind sshd whose k3s is this lab's cluster."""
    made = RemoteNode(lab, tmp_path_factory.mktemp("remote"))
    try:
        yield made
    finally:
        made.close()

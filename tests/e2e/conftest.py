import json
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from sandbox.cache import locked
from sandbox.cluster import Cluster
from sandbox.dataset import training_text
from sandbox.toolchain import bin_dir
from sandbox.venvs import PROJECT
from tests.e2e.lab import Lab

KEPT = "localhost/disttrain-e2e/kept:latest"


def build_image(lab: Lab) -> None:
    """The image, if it is not cached: the stacks name a proxy that no build could go through."""
    settings = yaml.safe_load((PROJECT / "Pulumi.sandbox.yaml").read_text())["config"]
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())["config"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "infra.imaging", "ensure", "--ctr", "ctr"),
            *("--repository", project["imageRepository"]["default"]),
            *("--base-image", settings["disttrain:imageBase"]),
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


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster of its own; its image store is kept between runs, all else is removed."""
    with locked("e2e-cluster"):
        cluster = Cluster("e2e", bin_dir())
        cluster.down()
        shutil.rmtree(cluster.data_root, ignore_errors=True)
        cluster.up()
        made = Lab(cluster, tmp_path_factory.mktemp("e2e"), training_text().path)
        build_image(made)
        try:
            yield made
        finally:
            cluster.down()
            shutil.rmtree(cluster.data_root)

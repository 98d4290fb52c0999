import shutil
from collections.abc import Iterator

import pytest

from sandbox.cache import locked
from sandbox.cluster import Cluster
from sandbox.dataset import training_text
from sandbox.toolchain import bin_dir
from tests.e2e.lab import Lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster of its own; its image store is kept between runs, all else is removed."""
    with locked("e2e-cluster"):
        cluster = Cluster("e2e", bin_dir())
        cluster.down()
        shutil.rmtree(cluster.data_root, ignore_errors=True)
        cluster.up()
        try:
            yield Lab(cluster, tmp_path_factory.mktemp("e2e"), training_text().path)
        finally:
            cluster.down()
            shutil.rmtree(cluster.data_root)

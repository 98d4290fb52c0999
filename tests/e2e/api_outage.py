"""Makes the API server unavailable for a while: kills it and starts it again, or freezes it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox import components
from sandbox.checks import missing_api
from sandbox.cluster import Cluster
from sandbox.controllers.outage import kill_program

NAME = "kube-apiserver"
_SIGNAL = 'kill "-$1" "$2" $(cat "/proc/$2/task/$2/children")'


@contextmanager
def stopped_api_server(cluster: Cluster) -> Iterator[None]:
    """Kill the API server, so that connections are refused, and start it again after the block."""
    node = cluster.node(1)
    link = node.link
    assert link is not None, "the cluster is up"
    kill_program(cluster, NAME)
    try:
        yield
    finally:
        made = components.first_components(node.layout, link, node.bin_dir)
        node.start([each for each in made if each.name == NAME])
        node.wait("the API server", lambda: missing_api(node, link))


@contextmanager
def frozen_api_server(cluster: Cluster) -> Iterator[None]:
    """Stop the API server's process during the block: it accepts connections but never answers."""
    _signal(cluster, "STOP")
    try:
        yield
    finally:
        _signal(cluster, "CONT")
        node = cluster.node(1)
        link = node.link
        assert link is not None, "the cluster is up"
        node.wait("the API server", lambda: missing_api(node, link))


def _signal(cluster: Cluster, signal: str) -> None:
    node = cluster.node(1)
    assert node.holder is not None, "the cluster is up"
    pid = (node.layout.run / f"{NAME}.pid").read_text().split()[0]
    command = node.holder.enter("sh", "-c", _SIGNAL, "sh", signal, pid)
    subprocess.run(command, check=True)

"""A Node that somebody has deleted (`kubectl delete node`) comes back with the next `pulumi up`.

The kubelet registers its Node only when it starts, so k3s has to be started once more. The same
repairs a machine whose certificate has ended.
"""

import os
from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost
from tests.unit.node.member_script import K3S, WELL, ask

DELETED = 'Error from server (NotFound): nodes "gpu2" not found'
ENDED = "error: You must be logged in to the server (Unauthorized)"


@pytest.fixture(params=["agent", "server"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> K3sHost:
    """Return a machine that is in the cluster, once as an agent and once as a server."""
    made = K3sHost(tmp_path, request.param)
    made.run("create", "gpu2")
    made.has_joined()
    return made


def test_machine_without_its_node_is_repaired(host: K3sHost) -> None:
    """A machine whose k3s runs, but whose Node was deleted, does not count as healthy. Otherwise
    `up` would change nothing, and no pod would come to the machine any more.
    """
    assert host.look()["healthy"] == "yes"
    host.asks_in_vain(DELETED)
    assert host.look()["healthy"] == "no"


def test_node_that_was_made_anew_gets_its_labels(host: K3sHost) -> None:
    """A machine does not count as healthy if its Node has none of this program's labels. That is so
    if the Node was deleted, and k3s or the machine was then restarted by somebody else.
    """
    host.has_bare_node()
    assert host.look()["healthy"] == "no"


@pytest.mark.parametrize("answer", ["Unable to connect to the server: EOF", "Forbidden"])
def test_cluster_that_does_not_answer_says_nothing(host: K3sHost, answer: str) -> None:
    """A machine still counts as healthy if the cluster does not answer whether its Node exists."""
    host.asks_in_vain(answer)
    assert host.look()["healthy"] == "yes"


def test_running_k3s_starts_to_make_its_node(host: K3sHost) -> None:
    """k3s that runs is restarted only if the script is told that the Node is missing, and says
    why.
    """
    assert host.run("update", "gpu2").splitlines()[-1] == "started="
    said = host.run("update", "gpu2", NODE_MISSING="1").splitlines()
    assert "the cluster has no node gpu2; starting k3s anew, which makes it" in said
    assert said[-1].startswith("started=2")


def test_machine_whose_certificate_has_ended_is_repaired(host: K3sHost) -> None:
    """A machine whose kubelet the cluster refuses does not count as healthy, and its k3s is started
    anew. k3s renews its certificates only when it starts, so after a year without a restart the
    Node was lost, and `up` changed nothing.
    """
    host.asks_in_vain(ENDED)
    assert host.look()["healthy"] == "no"
    said = host.run("update", "gpu2").splitlines()
    assert said[0].startswith("the cluster refuses the certificates of this machine")
    assert said[-1].startswith("started=2")


@pytest.mark.parametrize(("days", "healthy"), [(364, "no"), (200, "yes")])
def test_first_machine_notices_ended_certificates(tmp_path: Path, days: int, healthy: str) -> None:
    """The first machine does not count as healthy either when its certificates have ended. The API
    server is asked about that only if they are old, because the look has to be quick.
    """
    first = K3sHost(tmp_path)
    first.has_first_k3s()
    assert "healthy=yes" in first.ask_first().splitlines()
    certificate = first.root / "var/lib/rancher/k3s/server/tls/client-admin.crt"
    certificate.parent.mkdir(parents=True)
    certificate.touch()
    written = certificate.stat().st_mtime - days * 24 * 3600
    os.utime(certificate, (written, written))
    assert "healthy=yes" in first.ask_first().splitlines()  # it was made for a longer time
    first.asks_in_vain(ENDED)
    assert f"healthy={healthy}" in first.ask_first().splitlines()


@pytest.mark.parametrize("there", ["yes", "no"])
def test_server_tells_whether_the_node_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    """The script on the server prints whether the cluster has the machine's Node."""
    answer = "echo node/two" if there == "yes" else ":"
    k3s = K3S.replace("echo node/x", answer)
    monkeypatch.setattr("tests.unit.node.member_script.K3S", k3s)
    done = ask(tmp_path, "join", WELL)
    assert f"has_node={there}" in done.stdout.splitlines()

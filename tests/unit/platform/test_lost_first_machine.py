"""What a stack with a lost first machine (`hostGone`) asks of the further ones before `destroy`."""

from pathlib import Path
from unittest.mock import Mock, patch

import pulumi
import pytest

from infra.kube.errors import UnreachableError
from infra.node.k3s_observation import HostAccess, K3sObservation
from tests.unit.airgap.stocked import stock
from tests.unit.certificates import AUTHORITY
from tests.unit.platform.machines import FITTING, THREE, TWO
from tests.unit.stacks import Deployment, deploy

SILENT = TWO["address"]
ALL_INPUTS = {"connection", "create", "update", "delete", "stdin", "triggers"}


def lost(*nodes: object, **changes: object) -> Deployment:
    """Return what the program registers if the first machine is lost and `gpu2` does not answer."""

    def look(access: HostAccess, **_: object) -> K3sObservation:
        assert access.ssh
        problem = "no answer in 10 s" if access.ssh["host"] == SILENT else ""
        return K3sObservation("repair-1", "", problem=problem)

    settings = {**FITTING, "nodes": [*nodes], "hostGone": True, **changes}
    with patch("infra.platform.further_machines.observe_k3s", look):
        return deploy("dev", Path("none of this machine's files"), settings)


def test_machine_that_is_silent_too_has_to_be_marked() -> None:
    """If a further machine does not answer either, `up` is refused until the machine is marked as
    lost. Otherwise `destroy` would fail at it, and no `up` could mark it any more.
    """
    with pytest.raises(pulumi.RunError) as refused:
        lost(TWO, THREE)
    said = str(refused.value)
    assert "do not answer either: gpu2 (10.1.2.4: no answer in 10 s). `pulumi destroy`" in said
    assert "Set `gone: true`" in said


def test_machine_that_is_marked_is_not_asked() -> None:
    """A machine that is marked as lost is not asked whether it answers."""
    assert lost({**TWO, "gone": True}, THREE).one("node-gpu2-k3s")


def test_commands_on_lost_machines_never_run(tmp_path: Path) -> None:
    """No command for a lost machine runs, whatever changes in it, and the engine only forgets it. A
    new version of disttrain or a changed setting would otherwise run it by ssh on a machine that is
    gone.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    changes = {"caBundle": str(authority), "storage": "nfs-first-node", "storageOptions": {}}
    made = lost({**TWO, "gone": True}, THREE, **changes)
    on_first = {
        "host-guard-look",
        "trust-bundle",
        "data-root-folder",
        "nfs-server",
        "node-gpu3-nfs-export",
        "cluster-k3s",
        "cluster-kubeconfig",
        *(f"gpu-operator-{part}" for part in ("guard", "cleanup", "watch", "await")),
    }
    on_second = {"node-gpu2-trust-bundle", "node-gpu2-nfs-client-10.1.2.4"}
    for name in on_first | on_second:
        request = made.one(name).request
        assert {*request.ignoreChanges} >= ALL_INPUTS, name
        assert request.retainOnDelete, name
    assert not made.one("node-gpu3-trust-bundle").request.retainOnDelete


def test_bundle_is_never_sent_to_lost_machines(tmp_path: Path) -> None:
    """A bundle is not sent to a lost machine, even if the bundle has changed."""
    made = lost({**TWO, "gone": True}, THREE, bundle=str(stock(tmp_path)))
    for name in ("bundle-on-host-send", "node-gpu2-bundle-send"):
        ignored = {*made.one(name).request.ignoreChanges}
        assert ignored >= {"create", "environment", "triggers"}, name
    assert "create" not in made.one("node-gpu3-bundle-send").request.ignoreChanges


def test_lost_cluster_is_not_asked_about_its_queue() -> None:
    """A stack with the setting `queues` can forget a lost first machine, too. Its cluster is not
    asked what the queue is made of, and the queue's objects stay in the state as they are.
    """
    queues = {"queues": {"name": "gpus"}, "controllers": ["kueue"]}
    with patch("tests.unit.stacks.KUEUE", Mock(side_effect=UnreachableError("no route"))) as asked:
        made = lost(THREE, **queues)
    asked.assert_not_called()
    for name in ("flavor", "cluster-queue", "local-queue"):
        ignored = made.one(f"queues-{name}").request.ignoreChanges
        assert {*ignored} == {"apiVersion", "spec"}

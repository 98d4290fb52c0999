"""How the program knows a further machine again that has another name or was installed anew, and
that two names do not lead to one machine.
"""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pulumi
import pytest

from infra.node.k3s_observation import K3sObservation
from tests.unit.airgap.stocked import stock
from tests.unit.certificates import AUTHORITY
from tests.unit.platform.machines import FITTING, THREE, TWO
from tests.unit.stacks import Deployment, deploy


def renamed_from(scratch: Path, node: str, *nodes: object) -> list[str]:
    """Return the names that the engine is given as aliases of the machine gpu2, which notes that it
    is the node `node`. They are those of the component, from which the engine infers those of its
    parts.
    """
    look = K3sObservation("repair-1", "", node=node)
    with patch("infra.platform.further_machines.observe_k3s", lambda *_, **__: look):
        result = deploy("dev", scratch, {**FITTING, "nodes": [*nodes]})
    return [alias.spec.name for alias in result.one("node-gpu2").request.aliases]


def test_machine_with_another_name_is_the_same_resource(tmp_path: Path) -> None:
    """A machine that gets another name stays the same resource. Otherwise the engine would let it
    join anew first, and then remove its k3s by the former resource.
    """
    assert renamed_from(tmp_path, "gpu-old", TWO) == ["node-gpu-old"]


def test_machine_with_another_name_keeps_what_was_brought_to_it(tmp_path: Path) -> None:
    """A machine that gets another name keeps its authorities and a bundle's files, because their
    resources keep their identity. Otherwise the former resource would remove them after the new one
    has brought them.

    For two machines that swap names, the engine can be told nothing, so the scripts get the name to
    note it on the machine.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    (tmp_path / "bundle").mkdir()
    bundle = str(stock(tmp_path / "bundle"))
    look = K3sObservation("repair-1", "", node="gpu-old")
    with patch("infra.platform.further_machines.observe_k3s", lambda *_, **__: look):
        changes = {**FITTING, "nodes": [TWO], "caBundle": str(authority), "bundle": bundle}
        result = deploy("dev", tmp_path, changes)
    for what, command in (("trust", "trust-bundle"), ("bundle", "bundle-stage")):
        aliases = result.one(f"node-gpu2-{what}").request.aliases
        assert [alias.spec.name for alias in aliases] == [f"node-gpu-old-{what}"]
        assert "export NODE=gpu2\n" in result.one(f"node-gpu2-{command}").program
    for first in ("trust-bundle", "bundle-on-host-stage"):
        assert "export NODE" not in result.one(first).program


def test_machine_installed_anew_gets_everything_again(tmp_path: Path) -> None:
    """A machine that was installed anew gets its authorities, the bundle's files and the NFS client
    again, although the settings have not changed. A machine that does not answer keeps its commands
    as they are.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    (tmp_path / "bundle").mkdir()
    changes = {**FITTING, "caBundle": str(authority), "nodes": [TWO]}
    changes |= {"bundle": str(stock(tmp_path / "bundle"))}
    changes |= {"storage": "nfs-first-node", "storageOptions": {}}
    names = [f"node-gpu2-{end}" for end in ("trust-bundle", "bundle-stage", "nfs-client-10.1.2.4")]

    def seen(look: K3sObservation, **more: object) -> Deployment:
        with patch("infra.platform.further_machines.observe_k3s", lambda *_, **__: look):
            return deploy("dev", tmp_path, {**changes, **more})

    well, anew = seen(K3sObservation("repair-1", "")), seen(K3sObservation("repair-2", ""))
    for name in names:
        assert well.one(name).program != anew.one(name).program
        assert not anew.one(name).request.ignoreChanges
    sent = "node-gpu2-bundle-send"
    assert well.one(sent).inputs["triggers"] != anew.one(sent).inputs["triggers"]
    first = ("trust-bundle", "bundle-on-host-stage", "nfs-server")
    for name in first:
        assert well.one(name).program == anew.one(name).program
    with patch("infra.platform.further_machine.pulumi.log.warn") as warned:
        away = seen(K3sObservation("new-id", "new-id", problem="no answer in 10 s"))
    ((said,),) = (call.args for call in warned.call_args_list)
    assert said.startswith("10.1.2.4 could not be asked about its k3s (no answer in 10 s), so its")
    lost = seen(K3sObservation("", ""), nodes=[{**TWO, "gone": True}])
    assert {*away.one(sent).request.ignoreChanges} == {"triggers"}
    for name in names:  # only the command of k3s changes
        assert {*away.one(name).request.ignoreChanges} == {"stdin"}
    for name in (sent, *names):  # nothing runs on a lost machine
        assert {"create", "stdin", "triggers"} <= {*lost.one(name).request.ignoreChanges}


@pytest.mark.parametrize("noted", ["", "gpu2", "gpu3"])
def test_name_of_no_other_machine_is_taken_for_an_old_one(tmp_path: Path, noted: str) -> None:
    """A machine has no former name if it has noted none, the same name, or the name of another
    machine in the list.
    """
    assert renamed_from(tmp_path, noted, TWO, THREE) == []


def looked(*machines: str) -> Callable[..., K3sObservation]:
    """Return a stand-in for the look at machines, where gpu2 and gpu3 say that they are these
    machines.
    """
    said = dict(zip(("10.1.2.4", "10.1.2.5"), machines, strict=True))
    return lambda access, **_: K3sObservation("repair-1", "", machine=said[access.ssh["host"]])


def test_one_machine_under_two_names_is_refused(tmp_path: Path) -> None:
    """Two items of `nodes` that lead to one machine are refused. Otherwise each of them would take
    the other's k3s for its own, and each `up` would rename it. The doctor does not compare further
    machines with each other.
    """
    nodes = {**FITTING, "nodes": [TWO, THREE]}
    with (
        patch(
            "infra.platform.further_machines.observe_k3s", looked("id-1 10.0.0.4", "id-1 10.0.0.4")
        ),
        pytest.raises(pulumi.RunError) as refused,
    ):
        deploy("dev", tmp_path, nodes)
    assert str(refused.value) == (
        "nodes: gpu2 (10.1.2.4) and gpu3 (10.1.2.5) cannot be used: both lead to one machine, with "
        "the machine-id id-1 and the address 10.0.0.4, and a machine is one node. Nothing was "
        "changed. Take one of the two out of nodes."
    )
    for others in (
        ("id-1 10.0.0.4", "id-1 10.0.0.5"),
        ("id-1 10.0.0.4", "id-2 10.0.0.4"),
        ("", ""),
    ):
        with patch("infra.platform.further_machines.observe_k3s", looked(*others)):
            assert deploy("dev", tmp_path, nodes).one("node-gpu3-k3s")

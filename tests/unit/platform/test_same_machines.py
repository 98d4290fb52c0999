"""Which machine a further machine is: with another name, installed anew, or named twice."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pulumi
import pytest

from infra.node.k3s_look import K3sLook
from tests.unit.airgap.stocked import stock
from tests.unit.certificates import AUTHORITY
from tests.unit.platform.machines import FITTING, THREE, TWO
from tests.unit.stacks import Deployment, deploy


def renamed_from(scratch: Path, node: str, *nodes: object) -> list[str]:
    """The names by which the engine is to know the machine gpu2, which notes this node.

    For the component: the engine infers those of its parts.
    """
    look = K3sLook("repair-1", "", node=node)
    with patch("infra.platform.agents.look_at_k3s", lambda *_, **__: look):
        result = deploy("dev", scratch, {**FITTING, "nodes": [*nodes]})
    return [alias.spec.name for alias in result.one("node-gpu2").request.aliases]


def test_machine_with_another_name_is_the_same_resource(tmp_path: Path) -> None:
    """Else the engine would let it join anew first, and then take k3s away by the old resource."""
    assert renamed_from(tmp_path, "gpu-old", TWO) == ["node-gpu-old"]


def test_machine_with_another_name_keeps_what_was_brought_to_it(tmp_path: Path) -> None:
    """The resource of its old name would take it away, once that of the new one is there.

    These are authorities and a bundle's files. On the machine the scripts note its name, for a swap
    of names, of which the engine can be told nothing.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    (tmp_path / "bundle").mkdir()
    bundle = str(stock(tmp_path / "bundle"))
    look = K3sLook("repair-1", "", node="gpu-old")
    with patch("infra.platform.agents.look_at_k3s", lambda *_, **__: look):
        changes = {**FITTING, "nodes": [TWO], "caBundle": str(authority), "bundle": bundle}
        result = deploy("dev", tmp_path, changes)
    for what, command in (("trust", "trust-bundle"), ("bundle", "bundle-stage")):
        aliases = result.one(f"node-gpu2-{what}").request.aliases
        assert [alias.spec.name for alias in aliases] == [f"node-gpu-old-{what}"]
        assert "export NODE=gpu2\n" in result.one(f"node-gpu2-{command}").program
    for first in ("trust-bundle", "bundle-on-host-stage"):
        assert "export NODE" not in result.one(first).program


def test_machine_installed_anew_gets_everything_again(tmp_path: Path) -> None:
    """It joined again, without the authorities, the bundle's files and the client of NFS that it
    had: their settings had not changed.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    (tmp_path / "bundle").mkdir()
    changes = {**FITTING, "caBundle": str(authority), "nodes": [TWO]}
    changes |= {"bundle": str(stock(tmp_path / "bundle"))}
    changes |= {"storage": "nfs-first-node", "storageOptions": {}}
    names = [f"node-gpu2-{end}" for end in ("trust-bundle", "bundle-stage", "nfs-client-10.1.2.4")]

    def seen(look: K3sLook, **more: object) -> Deployment:
        with patch("infra.platform.agents.look_at_k3s", lambda *_, **__: look):
            return deploy("dev", tmp_path, {**changes, **more})

    well, anew = seen(K3sLook("repair-1", "")), seen(K3sLook("repair-2", ""))
    for name in names:
        assert well.one(name).program != anew.one(name).program
        assert not anew.one(name).request.ignoreChanges
    sent = "node-gpu2-bundle-send"
    assert well.one(sent).inputs["triggers"] != anew.one(sent).inputs["triggers"]
    first = ("trust-bundle", "bundle-on-host-stage", "nfs-server")
    for name in first:
        assert well.one(name).program == anew.one(name).program
    with patch("infra.platform.agents.pulumi.log.warn") as warned:
        away = seen(K3sLook("new-id", "new-id", problem="no answer in 10 s"))
    ((said,),) = (call.args for call in warned.call_args_list)
    assert said.startswith("10.1.2.4 could not be asked about its k3s (no answer in 10 s), so its")
    lost = seen(K3sLook("", ""), nodes=[{**TWO, "gone": True}])
    assert {*away.one(sent).request.ignoreChanges} == {"triggers"}
    for name in names:  # its commands stay as they are, but that of k3s
        assert {*away.one(name).request.ignoreChanges} == {"stdin"}
    for name in (sent, *names):  # nothing runs on a lost machine
        assert {"create", "stdin", "triggers"} <= {*lost.one(name).request.ignoreChanges}


@pytest.mark.parametrize("noted", ["", "gpu2", "gpu3"])
def test_name_of_no_other_machine_is_taken_for_an_old_one(tmp_path: Path, noted: str) -> None:
    """Neither where it is unknown or unchanged, nor where the list has a machine of that name."""
    assert renamed_from(tmp_path, noted, TWO, THREE) == []


def looked(*machines: str) -> Callable[..., K3sLook]:
    """Stands in for the look: what gpu2, gpu3 and so on say that they are."""
    said = dict(zip(("10.1.2.4", "10.1.2.5"), machines, strict=True))
    return lambda access, **_: K3sLook("repair-1", "", machine=said[access.ssh["host"]])


def test_one_machine_under_two_names_is_refused(tmp_path: Path) -> None:
    """Each of the two would take the other's k3s for its own, and each `up` would rename it.

    The doctor of `up` looks at each further machine and the first one, and not at these two.
    """
    nodes = {**FITTING, "nodes": [TWO, THREE]}
    with (
        patch("infra.platform.agents.look_at_k3s", looked("id-1 10.0.0.4", "id-1 10.0.0.4")),
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
        with patch("infra.platform.agents.look_at_k3s", looked(*others)):
            assert deploy("dev", tmp_path, nodes).one("node-gpu3-k3s")

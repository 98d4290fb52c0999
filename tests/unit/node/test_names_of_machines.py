"""What the scripts do on a machine that gets another name, or whose name goes to another machine.

tests/node/test_renamed_nodes.py runs the whole program, on hosts.
"""

import subprocess
from pathlib import Path

import pytest

from infra.node.k3s_observation import judge
from tests.unit.node.k3s_host import K3sHost
from tests.unit.node.member_script import WELL, ask, asked


def test_machine_notes_its_node_and_says_it(tmp_path: Path) -> None:
    """A machine notes the name of its Node, from the moment when it gets k3s' files, and reports
    it. By this name the next `up` knows which of the former machines this one is.
    """
    host = K3sHost(tmp_path)
    host.run("prepare", "gpu2")
    assert host.look()["node"] == "gpu2"
    host.run("create", "gpu2")
    host.run("create", "gpu-new")
    assert judge(host.look(), "new-id").node == "gpu-new"
    settings = host.root / "etc/rancher/k3s/config.yaml"
    assert 'node-name: "gpu-new"' in settings.read_text().splitlines()


def test_machine_says_by_what_it_is_known(tmp_path: Path) -> None:
    """A machine is known by its machine-id together with its address. The id alone is not enough,
    because a copied disk has the id of another machine.
    """
    host = K3sHost(tmp_path)
    assert judge(host.look(), "new-id").machine == ""
    (host.root / "etc/machine-id").write_text("4a7f\n")
    assert judge(host.look(), "new-id").machine == "4a7f 10.1.2.4"
    host.run("create", "gpu2")
    assert judge(host.look(), "new-id").machine == "4a7f 10.1.2.4"
    host.has_ipv6_alone()
    assert judge(host.look(), "new-id").machine == "4a7f fd00::4"
    host.stands_without_route()
    assert judge(host.look(), "new-id").machine == ""


@pytest.mark.parametrize("role", ["agent", "server"])
def test_machine_of_another_node_by_now_keeps_its_k3s(tmp_path: Path, role: str) -> None:
    """The deletion of a former name leaves a machine that has joined under another name as it is.
    The engine deletes what was of the former name last.
    """
    host = K3sHost(tmp_path, role)
    host.run("create", "gpu-new")
    said = host.run("delete", "gpu2")
    assert "this host is the node gpu-new by now, and not gpu2; it is left as it is" in said
    assert host.runs
    assert not host.was_uninstalled
    assert host.look()["node"] == "gpu-new"


@pytest.mark.parametrize("role", ["agent", "server"])
def test_k3s_that_came_by_another_address_stays(tmp_path: Path, role: str) -> None:
    """A machine that is cleared by one of its addresses keeps the k3s that came by another address.
    A k3s of an older version has no address noted, and is cleared.
    """
    host = K3sHost(tmp_path, role)
    host.run("create", "gpu2")
    assert host.run("clear", "gpu2", HOST="10.1.2.4") == "left=joined\n"
    host.run("create", "gpu2", HOST="10.1.2.4")
    assert host.run("clear", "gpu2", HOST="gpu2.lan") == ""
    assert host.run("clear", "gpu2", HOST="10.1.2.4") == "left=joined\n"


@pytest.mark.parametrize("noted", ["gpu1.lan", ""])
def test_first_machine_is_cleared_only_by_its_address(tmp_path: Path, noted: str) -> None:
    """A first machine is cleared only by the address by which its k3s came. If an older version has
    noted no address, it is cleared.
    """
    host = K3sHost(tmp_path, "server")
    notes = host.root / "etc/rancher/disttrain"
    notes.parent.mkdir()
    notes.write_text("owner owner-1\nstack dev\n" + (f"host {noted}\n" if noted else ""))
    if noted:
        assert host.clear_first(HOST="10.1.2.3") == ""
        assert notes.exists()
    assert host.clear_first(HOST="gpu1.lan").endswith("k3s is removed\n")
    assert not notes.exists()


def test_server_of_another_node_by_now_is_started_again_when_it_ends(tmp_path: Path) -> None:
    """A server that leaves is kept from starting again. A server that has another name by now does
    not leave, so it is not kept from it.
    """
    host = K3sHost(tmp_path, "server")
    host.run("create", "gpu-new")
    host.run("retire", "gpu2")
    kept_down = host.root / "run/systemd/system/k3s.service.d"
    assert not kept_down.exists()
    host.run("retire", "gpu-new")
    assert kept_down.exists()


@pytest.mark.parametrize("folder", ["/etc/rancher/k3s", "/var/lib/rancher/k3s", "/var/lib/cni"])
def test_removal_that_was_cut_off_is_finished(tmp_path: Path, folder: str) -> None:
    """A removal of k3s that was cut off is completed by the next one. The notes of what is this
    program's are removed last; without them, what is left would belong to nobody and stay for ever.
    """
    host = K3sHost(tmp_path)
    host.run("create", "gpu2")
    left = host.root / folder[1:]
    left.mkdir(parents=True, exist_ok=True)
    (left / "data").touch()
    host.is_cut_off_at(folder)
    assert "k3s is removed" not in host.run("delete", "gpu2")
    assert left.exists()
    host.is_back()
    assert host.run("delete", "gpu2").endswith("k3s is removed\n")
    assert not left.exists()
    assert not (host.root / "etc/rancher").exists()


@pytest.mark.parametrize("noted", ["this node", "no node"])
def test_machine_that_is_still_that_node_loses_k3s(tmp_path: Path, noted: str) -> None:
    """The removal under a machine's own name removes k3s and its notes. So it does on a machine
    where an older version has noted no name.
    """
    host = K3sHost(tmp_path)
    host.run("create", "gpu2")
    notes = host.root / "etc/rancher/disttrain"
    if noted == "no node":
        kept = [line for line in notes.read_text().splitlines(True) if "node " not in line]
        notes.write_text("".join(kept))
    assert host.run("delete", "gpu2").endswith("k3s is removed\n")
    assert host.was_uninstalled
    assert not host.runs
    assert not notes.exists()
    found = host.look()
    assert (found["state"], found["new_machine"]) == ("absent", "yes")


@pytest.mark.parametrize("role", ["", "server"])
@pytest.mark.parametrize(("action", "new"), [("forget", ""), ("join", "yes")])
def test_password_of_a_name_goes_with_its_node(
    tmp_path: Path, role: str, action: str, new: str
) -> None:
    """When a machine leaves, and when a new machine takes a name, the Node and its password in the
    cluster are deleted. k3s refuses a machine under a name whose password is that of another
    machine.
    """
    done = member(tmp_path, action, role, new)
    assert done.returncode == 0, done.stderr
    assert asked(tmp_path, "delete node two ")
    assert asked(tmp_path, "-n kube-system delete secret two.node-password.k3s ")


@pytest.mark.parametrize("role", ["", "server"])
def test_machine_of_before_keeps_its_password_and_its_node(tmp_path: Path, role: str) -> None:
    """A machine that joins again, as after a change of its settings, keeps its Node and its
    password, so that its pods run on.
    """
    done = member(tmp_path, "join", role, "no")
    assert done.returncode == 0, done.stderr
    assert not asked(tmp_path, " delete ")


def member(folder: Path, action: str, role: str, new: str) -> subprocess.CompletedProcess[str]:
    """Run an action of the server's script for the node `two`."""
    return ask(folder, action, WELL, ROLE=role, NEW_MACHINE=new)

"""Storage `nfs-first-node`: what the program tells the engine about server, clients and volume."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.node.k3s_look import K3sLook
from tests.unit import stacks
from tests.unit.platform.machines import FITTING, THREE, TWO, deployed
from tests.unit.program.parts import everything_before
from tests.unit.stacks import Deployment, Registered, deploy

STORAGE: dict[str, object] = {"storage": "nfs-first-node", "storageOptions": {}}
SERVER = "nfs-server"


def made(scratch: Path, *nodes: object, **changes: object) -> Deployment:
    return deployed(scratch, *nodes, **{**STORAGE, **changes})


def before(result: Deployment, name: str) -> set[str]:
    return everything_before(result, result.one(name))


def inputs(found: Registered) -> dict[str, Any]:
    """Of a command, without the address that the recording engine makes up for a machine."""
    return {key: found.inputs.get(key) for key in ("stdin", "triggers", "create", "delete")}


def test_every_node_mounts_the_folder_of_the_first_machine(tmp_path: Path) -> None:
    """With the options of storage `nfs`; the folder is that of `host-path`, and stays with it."""
    result = made(tmp_path, TWO)
    (volume,) = result.of_type("kubernetes:core/v1:PersistentVolume")
    spec = volume.inputs["spec"]
    assert spec["nfs"] == {"server": "10.1.2.3", "path": "/var/lib/disttrain"}
    assert spec["mountOptions"] == ["nfsvers=4.1", "hard"]
    assert spec["accessModes"] == ["ReadWriteMany"]
    folder = deployed(tmp_path).one("data-root-folder")
    assert inputs(result.one("data-root-folder")) == inputs(folder)
    assert result.outputs["hostDataPath"] == "/var/lib/disttrain"


def test_machine_may_mount_before_it_joins_and_until_it_has_left(tmp_path: Path) -> None:
    """What waits for a step goes before it, so drained pods can still save."""
    result = made(tmp_path, TWO, THREE)
    assert "data-root-folder" in before(result, SERVER)
    assert SERVER in before(result, "cluster-k3s")
    assert "node-gpu2-doctor-host" in before(result, "node-gpu2-nfs-client-10.1.2.4")
    assert {SERVER, "node-gpu2-nfs-client-10.1.2.4"} <= before(result, "node-gpu2-nfs-export")
    first = before(result, "node-gpu2-k3s")
    assert "node-gpu2-nfs-export" in first
    assert "node-gpu3-nfs-export" not in first
    assert "cluster-k3s" not in before(result, "node-gpu2-nfs-export")
    assert "node-gpu2-k3s" in before(result, "training-hand-over")


def test_machine_that_is_added_changes_no_command_of_others(tmp_path: Path) -> None:
    """Each has its own permission, for the address that it has said itself."""
    one, two = made(tmp_path, TWO), made(tmp_path, TWO, THREE)
    for name in (SERVER, "node-gpu2-nfs-client-10.1.2.4", "node-gpu2-nfs-export", "data-volume"):
        assert inputs(one.one(name)) == inputs(two.one(name)), name
    export = two.one("node-gpu3-nfs-export")
    assert "export NODE=gpu3\n" in export.program
    assert export.inputs["connection"]["host"] == "10.1.2.3"
    client = two.one("node-gpu3-nfs-client-10.1.2.5")
    assert client.inputs["connection"]["host"] == "10.1.2.5"
    assert "export SERVER_ADDRESS=10.1.2.3\n" in client.program


def test_lost_machine_may_not_mount_when_it_comes_back(tmp_path: Path) -> None:
    """Its permission goes on the first machine; what is on it is only forgotten."""
    result = made(tmp_path, {**TWO, "gone": True}, THREE)
    names = {resource.name for resource in result.resources}
    assert "node-gpu2-nfs-export" not in names
    assert "node-gpu3-nfs-export" in names
    assert result.one("node-gpu2-nfs-client-10.1.2.4").request.retainOnDelete
    assert not result.one("node-gpu3-nfs-client-10.1.2.5").request.retainOnDelete


def test_what_a_machine_had_goes_when_it_has_left(tmp_path: Path) -> None:
    """Another machine of its name may come, or another first one: pods save until they have ended.

    The engine makes what the new one needs first, and deletes what the one of before had last of
    all. By name and address the scripts know then what is another one's by now.
    """
    result = made(tmp_path, TWO)
    triggers = {
        SERVER: ["10.1.2.3"],
        "node-gpu2-nfs-client-10.1.2.4": ["10.1.2.4"],
        "node-gpu2-nfs-export": ["10.1.2.3", "10.1.2.4"],
    }
    for name, expected in triggers.items():
        command = result.one(name)
        assert not command.request.deleteBeforeReplace, name
        assert command.inputs["triggers"][0] == expected[0], name
        host = "10.1.2.4" if "-client-" in name else "10.1.2.3"
        assert f"export HOST={host}\n" in command.program, name
    # with another address of the machine the permission is another one, and so is the client
    client = result.one("node-gpu2-nfs-client-10.1.2.4")
    assert (
        client.urn
        in result.one("node-gpu2-nfs-export").request.propertyDependencies["triggers"].urns
    )
    assert [alias.spec.name for alias in client.request.aliases] == ["node-gpu2-nfs-client"]
    assert result.one("cluster-k3s").request.deleteBeforeReplace


def test_packages_come_by_the_proxy_of_the_settings(tmp_path: Path) -> None:
    result = made(tmp_path, TWO, httpProxy="http://proxy.example.com:3128")
    for name in (SERVER, "node-gpu2-nfs-client-10.1.2.4"):
        assert "export HTTP_PROXY=http://proxy.example.com:3128\n" in result.one(name).program
    assert "PROXY" not in result.one("node-gpu2-nfs-export").program.partition("set -eu")[0]


def test_other_storages_set_up_no_server(tmp_path: Path) -> None:
    result = deployed(tmp_path, TWO)
    assert not [resource for resource in result.resources if "nfs" in resource.name]


def test_data_of_the_first_machine_can_be_purged(tmp_path: Path) -> None:
    """They are this stack's, unlike those of a server that exists."""
    sure = {"dataOnDestroy": "purge", "purgeConfirmed": "/var/lib/disttrain"}
    folder = made(tmp_path, TWO, **sure).one("data-root-folder")
    assert "export PURGE=/var/lib/disttrain\n" in json.loads(folder.program)["program"]


@pytest.mark.parametrize(
    ("stack", "changes", "words"),
    [
        ("sandbox", {}, "storage: 'nfs-first-node' cannot be used: it sets up an NFS server on"),
        ("dev", {"k3sExisting": "adopt"}, "the machines of this cluster are somebody else's"),
        ("dev", {"host": "local", "nodeAddress": ""}, "nodeAddress: '' cannot be used: with"),
        ("dev", {"host": "local", "nodeAddress": "127.0.0.1"}, "Set the first machine's address"),
        ("dev", {"storageOptions": {"server": "nas"}}, "storageOptions.server: 'nas' cannot be"),
        ("dev", {"storageOptions": {"mountOptions": "soft"}}, "lets writes fail"),
    ],
)
def test_machines_that_are_not_ours_get_no_server(
    tmp_path: Path, stack: str, changes: dict[str, object], words: str
) -> None:
    ssh: dict[str, object] = {} if stack == "sandbox" else {"host": "ssh"}
    here = {"sshHost": "10.1.2.3", "sshHostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample"}
    with pytest.raises(pulumi.RunError) as refused:
        deploy(stack, tmp_path, {**STORAGE, **ssh, **(here if ssh else {}), **changes})
    assert words in str(refused.value)


def test_first_machine_installed_anew_serves_all_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server came back, and served the folder to no other machine: their pods waited for ever.

    Nothing changes on the others. Where it cannot be asked, all stays as it is.
    """
    lost = (SERVER, "node-gpu2-nfs-export", "node-gpu3-nfs-export")
    kept = ("node-gpu2-nfs-client-10.1.2.4", "node-gpu3-nfs-client-10.1.2.5")

    def seen(look: K3sLook) -> Deployment:
        monkeypatch.setattr(stacks, "LOOK", look)
        further = K3sLook("repair-1", "")
        monkeypatch.setattr("infra.platform.agents.look_at_k3s", lambda *_, **__: further)
        return deploy("dev", tmp_path, {**FITTING, **STORAGE, "nodes": [TWO, THREE]})

    well, stopped, anew, away = (
        seen(K3sLook("repair-1", "generation-1")),
        seen(K3sLook("new", "generation-1")),
        seen(K3sLook("new", "new")),
        seen(K3sLook("new", "new", problem="no answer in 10 s")),
    )
    for name in lost:
        assert well.one(name).program == stopped.one(name).program != anew.one(name).program
        assert not anew.one(name).request.ignoreChanges
        assert {*away.one(name).request.ignoreChanges} == {"stdin"}
    for name in kept:
        assert well.one(name).program == anew.one(name).program

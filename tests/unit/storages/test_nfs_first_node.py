"""Storage `nfs-first-node`: what the program registers for the NFS server, its clients and the
volume.
"""

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.node.k3s_observation import K3sObservation
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
    """Return the inputs of a command, without the address that the recording engine makes up for a
    machine.
    """
    return {key: found.inputs.get(key) for key in ("stdin", "triggers", "create", "delete")}


def test_every_node_mounts_the_folder_of_the_first_machine(tmp_path: Path) -> None:
    """Every node mounts the folder of the first machine with the mount options of storage `nfs`.
    The folder is the same as with `host-path`, and is kept like it.
    """
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
    """A machine gets its permission to mount before it joins the cluster, and keeps it until it has
    left. So pods that are drained can still save.
    """
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
    """A new machine gets a permission of its own, for its own address, and changes no command of
    other machines.
    """
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
    """A machine with `gone: true` loses its permission on the first machine. Its client command is
    only forgotten, because the machine does not answer.
    """
    result = made(tmp_path, {**TWO, "gone": True}, THREE)
    names = {resource.name for resource in result.resources}
    assert "node-gpu2-nfs-export" not in names
    assert "node-gpu3-nfs-export" in names
    assert result.one("node-gpu2-nfs-client-10.1.2.4").request.retainOnDelete
    assert not result.one("node-gpu3-nfs-client-10.1.2.5").request.retainOnDelete


def test_what_a_machine_had_goes_when_it_has_left(tmp_path: Path) -> None:
    """What a former machine had is deleted last, after its pods have saved, also if another machine
    takes its name or becomes the first one.

    The scripts get the name and the address, so that they can tell what belongs to another machine
    by now.
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
    # If the machine has another address, its permission and its client are made again.
    client = result.one("node-gpu2-nfs-client-10.1.2.4")
    assert (
        client.urn
        in result.one("node-gpu2-nfs-export").request.propertyDependencies["triggers"].urns
    )
    assert [alias.spec.name for alias in client.request.aliases] == ["node-gpu2-nfs-client"]
    assert result.one("cluster-k3s").request.deleteBeforeReplace


def test_packages_come_by_the_proxy_of_the_settings(tmp_path: Path) -> None:
    """The server and the clients install their packages through the proxy of the settings."""
    result = made(tmp_path, TWO, httpProxy="http://proxy.example.com:3128")
    for name in (SERVER, "node-gpu2-nfs-client-10.1.2.4"):
        assert "export HTTP_PROXY=http://proxy.example.com:3128\n" in result.one(name).program
    assert "PROXY" not in result.one("node-gpu2-nfs-export").program.partition("set -eu")[0]


def test_other_storages_set_up_no_server(tmp_path: Path) -> None:
    """Other storages set up no NFS server."""
    result = deployed(tmp_path, TWO)
    assert not [resource for resource in result.resources if "nfs" in resource.name]


def test_data_of_the_first_machine_can_be_purged(tmp_path: Path) -> None:
    """The data on the first machine belong to this stack and can be purged, unlike those of an
    existing server.
    """
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
    """If the first machine was installed anew, the server and the permissions of all machines are
    made again. Otherwise its server would serve nobody, and the pods of other machines would wait
    forever.

    The clients do not change. If the first machine cannot be asked, nothing changes.
    """
    lost = (SERVER, "node-gpu2-nfs-export", "node-gpu3-nfs-export")
    kept = ("node-gpu2-nfs-client-10.1.2.4", "node-gpu3-nfs-client-10.1.2.5")

    def seen(look: K3sObservation) -> Deployment:
        monkeypatch.setattr(stacks, "OBSERVATION", look)
        further = K3sObservation("repair-1", "")
        monkeypatch.setattr("infra.platform.further_machines.observe_k3s", lambda *_, **__: further)
        return deploy("dev", tmp_path, {**FITTING, **STORAGE, "nodes": [TWO, THREE]})

    well, stopped, anew, away = (
        seen(K3sObservation("repair-1", "generation-1")),
        seen(K3sObservation("new", "generation-1")),
        seen(K3sObservation("new", "new")),
        seen(K3sObservation("new", "new", problem="no answer in 10 s")),
    )
    for name in lost:
        assert well.one(name).program == stopped.one(name).program != anew.one(name).program
        assert not anew.one(name).request.ignoreChanges
        assert {*away.one(name).request.ignoreChanges} == {"stdin"}
    for name in kept:
        assert well.one(name).program == anew.one(name).program

"""What the real program tells the engine about the host and its k3s."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pulumi
import pytest

from infra.node.k3s_observation import K3sObservation
from infra.platform.k3s import kubeconfig_text
from tests.unit import stacks
from tests.unit.certificates import AUTHORITY
from tests.unit.platform.machines import SSH
from tests.unit.program.parts import everything_before
from tests.unit.stacks import PROJECT, Deployment, Registered, deploy, without_secrets


def with_observation(observation: K3sObservation, scratch: Path) -> Deployment:
    """Return what the program registers if the host says this about its k3s."""
    with patch("tests.unit.stacks.OBSERVATION", observation):
        return deploy("dev", scratch, SSH)


def inputs(result: Deployment, name: str) -> dict[str, Any]:
    return result.one(name).inputs


def test_k3s_that_has_to_be_repaired_runs_both_commands_again(tmp_path: Path) -> None:
    """Another repair id changes the commands that install k3s and fetch its kubeconfig, so that the
    engine runs both again, and replaces none of them.
    """
    first = with_observation(K3sObservation("repair-1", "generation-1"), tmp_path)
    same = with_observation(K3sObservation("repair-1", "generation-1"), tmp_path)
    other = with_observation(K3sObservation("repair-2", "generation-1"), tmp_path)
    for name in ("cluster-k3s", "cluster-kubeconfig"):
        assert inputs(first, name) == inputs(same, name)
        assert inputs(first, name)["stdin"] != inputs(other, name)["stdin"]
        assert inputs(first, name).get("triggers") == inputs(other, name).get("triggers")


MARK = "cluster-remote-generation"


def test_wiped_k3s_is_replaced_with_all_that_was_in_it(tmp_path: Path) -> None:
    """Another generation id replaces k3s, and with it all objects of the cluster.
    tests/e2e/test_new_cluster.py sees what the engine does then.
    """
    first = with_observation(K3sObservation("repair-1", "generation-1"), tmp_path)
    other = with_observation(K3sObservation("repair-2", "generation-2"), tmp_path)
    assert inputs(first, MARK)["triggers"] == ["10.1.2.3", "generation-1"]
    assert inputs(other, MARK)["triggers"] == ["10.1.2.3", "generation-2"]
    mark, install = other.one(MARK), other.one("cluster-k3s")
    assert install.inputs["triggers"] == [f"{MARK}-id"]
    assert mark.request.deleteBeforeReplace
    assert install.request.deleteBeforeReplace
    assert other.one("namespace").request.deletedWith == install.urn
    objects = [r for r in other.resources if r.type.startswith("kubernetes:")]
    assert len(objects) > 8
    for made in objects:
        assert list(made.request.replace_with) == [mark.urn], made.name


def test_mark_takes_away_a_k3s_that_the_engine_does_not_know(tmp_path: Path) -> None:
    """A resource is made before k3s is installed, so it is deleted after everything else. Its
    delete command removes a k3s that the engine does not know of; tests/node/test_faults.py tries
    that on a host.
    """
    name = "cluster-begun-10.1.2.3"
    made = deploy("dev", tmp_path, SSH)
    mark = made.one(name)
    assert name in before(made, "cluster-k3s")
    assert "host-guard-look" in before(made, name)
    assert mark.inputs["create"] == "sh -c true"
    assert mark.inputs["delete"].endswith("infra.node.on_host delete")
    job = json.loads(mark.program)
    assert job["ssh"]["host"] == "10.1.2.3"
    assert "came_by_other_address || delete" in job["program"]
    assert without_secrets(mark.wire["stdin"]) == "[secret]"
    assert [alias.spec.name for alias in mark.request.aliases] == ["cluster-begun"]
    # Another host replaces the mark, whose delete comes last; another SSH key only changes it.
    assert mark.inputs["triggers"] == ["10.1.2.3"]
    assert not mark.request.deleteBeforeReplace
    assert not mark.request.retainOnDelete
    lost = deploy("dev", tmp_path, {**SSH, "hostGone": True})
    assert lost.one(name).request.retainOnDelete
    assert not [r for r in lost.resources if r.name.startswith("doctor")]  # it needs the host
    here = deploy("dev", tmp_path, {"host": "local"}).one("cluster-begun-localhost")
    assert json.loads(here.program)["ssh"] is None
    adopted = deploy("dev", tmp_path, {**SSH, "k3sExisting": "adopt"})
    assert [r for r in adopted.resources if r.name == name] == []


def test_another_ssh_host_replaces_what_is_installed_and_keeps_the_data(tmp_path: Path) -> None:
    """Another `sshHost` replaces k3s, so that the former host does not keep it. The command of the
    data folder is only changed and not replaced, so that the data stay.
    """
    first = deploy("dev", tmp_path, SSH)
    other = deploy("dev", tmp_path, {**SSH, "sshHost": "10.1.2.4"})
    for name in (MARK, "host-guard-look"):
        assert inputs(first, name)["triggers"] != inputs(other, name)["triggers"]
    for name in ("host-guard-look", "data-root-folder"):
        assert {"cluster-k3s", "cluster-kubeconfig"} & before(other, name) == set()
    assert "host-guard-look" in before(other, MARK) & before(other, "data-root-folder")
    folder = inputs(first, "data-root-folder")
    assert folder.get("triggers") == inputs(other, "data-root-folder").get("triggers")
    assert not folder.get("triggers")


def test_data_stay_on_a_machine_that_is_left_also_where_destroy_purges_them(
    tmp_path: Path,
) -> None:
    """When the host changes from SSH to this machine, the command of the data folder is changed and
    not deleted. If it were deleted, it would purge the data on the former machine.
    """
    sure = {"dataOnDestroy": "purge", "purgeConfirmed": "/var/lib/disttrain"}
    over_ssh, here = deploy("dev", tmp_path, {**SSH, **sure}), deploy("dev", tmp_path, sure)
    folders = [result.one("data-root-folder") for result in (over_ssh, here)]
    assert folders[0].urn == folders[1].urn
    for folder, host in zip(folders, ("10.1.2.3", None), strict=True):
        assert not folder.inputs.get("triggers")
        job = json.loads(folder.program)
        assert "export PURGE=/var/lib/disttrain\n" in job["program"]
        assert (job["ssh"] or {}).get("host") == host


def test_data_stay_when_another_storage_takes_the_folders_place(tmp_path: Path) -> None:
    """When the stack changes to another storage, the command of the data folder is changed so that
    it does nothing, and is not deleted. If it were deleted, it would purge the data by the former
    settings.
    """
    sure = {"dataOnDestroy": "purge", "purgeConfirmed": "/var/lib/disttrain"}
    elsewhere = {"storage": "nfs", "storageOptions": {"server": "10.1.2.9", "path": "/data"}}
    folder, without = (
        deploy("dev", tmp_path, {**SSH, **changes}).one("data-root-folder")
        for changes in (sure, elsewhere)
    )
    assert folder.urn == without.urn
    assert not without.inputs.get("triggers")
    program = json.loads(without.program)["program"]
    assert "export DATA_ROOT=''\n" in program
    assert "export PURGE=''\n" in program


def test_first_machine_installed_anew_gets_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the first machine was installed anew, the commands for its data folder and its authorities
    run again. If it is not known because the machine does not answer, a preview shows no change of
    them.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    names = ("data-root-folder", "trust-bundle")

    def seen(observation: K3sObservation) -> list[Registered]:
        monkeypatch.setattr(stacks, "OBSERVATION", observation)
        made = deploy("dev", tmp_path, {**SSH, "caBundle": str(authority)})
        return [made.one(name) for name in names]

    well = seen(K3sObservation("repair-1", "generation-1"))
    stopped, anew = seen(K3sObservation("new", "generation-1")), seen(K3sObservation("new", "new"))
    for before, same, other in zip(well, stopped, anew, strict=True):
        assert before.program == same.program != other.program
        assert not before.request.ignoreChanges
    with patch("infra.platform.k3s_state.pulumi.log.warn") as warned:
        folder, trust = seen(K3sObservation("new", "new", problem="no answer in 10 s"))
    ((said,),) = (call.args for call in warned.call_args_list)
    assert "could not be asked about its k3s (no answer in 10 s), so its command runs again" in said
    assert [*trust.request.ignoreChanges] == ["stdin"]
    assert not folder.request.ignoreChanges, "an `up` notes whether the data are kept"
    monkeypatch.setattr("pulumi.runtime.is_dry_run", lambda: True)
    with patch("infra.platform.k3s_state.pulumi.log.warn"):
        folder, _ = seen(K3sObservation("new", "new", problem="no answer in 10 s"))
    assert [*folder.request.ignoreChanges] == ["stdin"], "a preview shows no change that is not"


@pytest.mark.parametrize(
    ("stack", "changes", "names"),
    [
        ("sandbox", {}, ("data-root-folder",)),
        ("dev", {"k3sExisting": "adopt"}, ("data-root-folder", "trust-bundle")),
    ],
    ids=["existing", "adopted"],
)
def test_machine_whose_k3s_is_not_ours_needs_no_repair(
    tmp_path: Path, stack: str, changes: dict[str, object], names: tuple[str, ...]
) -> None:
    """On a machine whose k3s this stack has not installed, the commands depend on the settings
    alone, and each change of the settings runs them.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    made = deploy(stack, tmp_path, {**changes, "caBundle": str(authority)})
    for name in names:
        command = made.one(name)
        assert "export REPAIR_ID" not in command.program
        assert not command.request.ignoreChanges


def test_host_of_ssh_and_this_machine_are_one_command_for_the_guard(tmp_path: Path) -> None:
    """When the host changes from SSH to this machine, the guard of the host is replaced as the same
    resource, before anything else. As another resource, its former one would be deleted last of
    all. tests/node/test_platform.py sees what the engine does.
    """
    over_ssh, here = deploy("dev", tmp_path, SSH), deploy("dev", tmp_path)
    guards = [result.one("host-guard-look") for result in (over_ssh, here)]
    assert guards[0].urn == guards[1].urn
    assert [guard.inputs["triggers"] for guard in guards] == [["10.1.2.3"], ["localhost"]]
    ways = [json.loads(guard.inputs["stdin"])["ssh"] for guard in guards]
    assert ways[0]["host"] == "10.1.2.3"
    assert ways[1] is None
    assert guards[0].request.deleteBeforeReplace


@pytest.mark.parametrize(
    ("changes", "noted", "words"),
    [
        (SSH, "local", "host: 'ssh' cannot be used: sshHost '10.1.2.3' leads to the machine on"),
        ({}, "ssh", "host: 'local' cannot be used: this is the machine on which this"),
    ],
)
def test_same_machine_is_not_reached_in_the_other_way(
    tmp_path: Path, changes: dict[str, object], noted: str, words: str
) -> None:
    """A `host` that leads to the same machine in the other way (`local` or `ssh`) is refused with
    the way out. Otherwise `up` would set up k3s there, and then remove it as that of the former
    machine.
    """
    owner = deploy("dev", tmp_path, changes).outputs["owner"]
    look = K3sObservation("repair-1", "generation-1", owner=owner, role="k3s", host_setting=noted)

    def deployed(observation: K3sObservation) -> Deployment:
        with patch("tests.unit.stacks.OBSERVATION", observation):
            return deploy("dev", tmp_path, changes)

    with pytest.raises(pulumi.RunError) as refused:
        deployed(look)
    said = str(refused.value)
    assert words in said
    assert f"pulumi config set host {noted}" in said
    assert "pulumi destroy" in said
    is_here = "local" if noted == "ssh" else "ssh"
    for fine in (
        replace(look, host_setting=is_here),
        replace(look, host_setting=""),
        replace(look, owner="other"),
    ):
        assert f"export WAY={is_here}\n" in deployed(fine).one("cluster-k3s").program


def before(result: Deployment, name: str) -> set[str]:
    """Return the names of all resources that are made before the resource `name`."""
    return everything_before(result, result.one(name))


def test_objects_in_an_adopted_k3s_are_deleted_one_by_one(tmp_path: Path) -> None:
    """Objects in an adopted k3s are deleted one by one by `destroy`, because that k3s stays."""
    result = deploy("dev", tmp_path, {**SSH, "k3sExisting": "adopt"})
    assert {resource.request.deletedWith for resource in result.resources} == {""}
    assert not [r.name for r in result.resources if r.request.replace_with]


def test_name_of_an_existing_cluster_holds_no_path(tmp_path: Path) -> None:
    """The name by which the engine knows an existing cluster depends on its server and not on the
    path of the kubeconfig. Otherwise another path to the same cluster would replace all objects.
    """
    names: set[str] = set()
    for folder in ("here", "there"):
        scratch = tmp_path / folder
        scratch.mkdir()
        result = deploy("sandbox", scratch)
        names.add(inputs(result, "cluster-provider")["clusterIdentifier"])
    (name,) = names
    assert "https://198.18.0.2:6443" in name


KUBECONFIG = "apiVersion: v1\nclusters:\n- cluster:\n    server: https://{}:6443\n"


@pytest.mark.parametrize(
    ("output", "server_host", "server"),
    [
        ("Welcome to gpu01\n" + KUBECONFIG.format("10.1.2.3"), "10.1.2.3", "10.1.2.3"),
        (KUBECONFIG.format("[::1]"), "[fd00::3]", "[fd00::3]"),
        (KUBECONFIG.format("[::1]"), "gpu01.lan", "gpu01.lan"),
        (KUBECONFIG.format("[::1]"), "127.0.0.1", "[::1]"),
    ],
    ids=["greeting", "address", "name", "here"],
)
def test_kubeconfig_leads_to_the_server(output: str, server_host: str, server: str) -> None:
    """The kubeconfig is read although the host's shell prints a greeting before it, and it leads to
    the server's address even if k3s names the loopback of IPv6.
    """
    assert kubeconfig_text(output, server_host) == KUBECONFIG.format(server)


@pytest.mark.parametrize("stack", ["dev", "sandbox"])
def test_commands_name_no_path_of_this_checkout(stack: str, tmp_path: Path) -> None:
    """No command contains a path of this checkout or its Python, so that `destroy` works from
    another checkout. test_tunnel.py looks at the kubeconfig of a tunnel.
    """
    result = deploy(stack, tmp_path, SSH if stack == "dev" else {})
    commands = [r for r in result.resources if r.type.startswith("command:")]
    assert len(commands) > 5
    for command in commands:
        text = json.dumps(command.inputs)
        assert str(PROJECT) not in text, command.name
        assert sys.executable not in text, command.name
        for action in ("create", "update", "delete"):
            first = command.inputs.get(action, "sh").split()[0]
            assert first in ("sh", "cat", ".venv/bin/python"), (command.name, first)

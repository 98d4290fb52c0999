"""What the real program tells the engine about further machines."""

import json
import re
from pathlib import Path

import pytest

from infra.node.doctor_plan import Plan
from tests.unit.certificates import AUTHORITY, OTHER_AUTHORITY
from tests.unit.platform.machines import (
    KEY,
    MARK,
    SERVERS,
    THREE,
    TWO,
    before,
    changed,
    deployed,
    job,
)
from tests.unit.stacks import Deployment, without_secrets


def test_machines_wait_for_the_server_and_not_for_each_other(tmp_path: Path) -> None:
    """Each further machine joins after the server and without waiting for the other machines. The
    training, and the last look of `destroy`, wait for all machines.
    """
    result = deployed(tmp_path, TWO, THREE)
    for name, other in (("gpu2", "gpu3"), ("gpu3", "gpu2")):
        first = before(result, f"node-{name}-k3s")
        assert "cluster-k3s" in first
        assert f"node-{other}-k3s" not in first
        assert not [name for name in first if name.startswith("namespace")]
    assert {"node-gpu2-k3s", "node-gpu3-k3s"} <= before(result, "destroy-guard-look")
    assert {"node-gpu2-k3s", "node-gpu3-k3s"} <= before(result, "training-hand-over")


def test_files_of_k3s_come_beside_the_installation_of_the_first(tmp_path: Path) -> None:
    """k3s' files come to each further machine while the first machine is installed, and after the
    machine's own examination, so that what takes long happens at one time. Labels and taints of a
    machine change only its joining.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    result = deployed(tmp_path, TWO, THREE, caBundle=str(authority))
    for name in ("gpu2", "gpu3"):
        first = before(result, f"node-{name}-files")
        assert {f"node-{name}-doctor-host", f"node-{name}-trust-bundle"} <= first
        assert "cluster-k3s" not in first
        assert "cluster-k3s" not in before(result, f"node-{name}")  # nor before its component
        assert f"node-{name}-files" in before(result, f"node-{name}-k3s")
        command = result.one(f"node-{name}-files").inputs
        assert command["create"].endswith("infra.node.agent prepare")
        assert command["delete"].endswith("infra.node.agent unprepare")
    marked = deployed(tmp_path, {**TWO, "labels": {"a": "b"}, "taints": ["a:NoSchedule"]}, THREE)
    plain = deployed(tmp_path, TWO, THREE)
    operator = {"gpu-operator-release", "gpu-operator-watch"}  # its pods tolerate the taint
    assert changed(plain, marked) == {"node-gpu2-k3s", *operator}


def test_mark_of_a_machine_comes_before_what_changes_it(tmp_path: Path) -> None:
    """A resource is made before everything that changes a further machine, so it is deleted after
    everything. Its delete command clears what an interrupted `up` left and the engine does not know
    of.
    """
    result = deployed(tmp_path, TWO)
    mark = result.one(f"node-gpu2-begun-{TWO['address']}")
    for name in ("node-gpu2-files", "node-gpu2-k3s"):
        assert mark.name in before(result, name)
        assert result.one(name).request.deleteBeforeReplace
    assert not mark.request.deleteBeforeReplace  # the machine has to leave first
    assert mark.inputs["create"] == "sh -c true"
    assert mark.inputs["delete"].endswith("infra.node.agent clear")
    given = json.loads(mark.program)
    assert given["server"]["ssh"]["host"] == "10.1.2.3"
    assert given["variables"]["member"]["NODE"] == "gpu2"


def test_mark_of_another_address_is_another_resource(tmp_path: Path) -> None:
    """The mark of a machine has the machine's address and role in its name. So an `up` that fails
    because a former machine is lost replaces nothing. The alias keeps the mark of an older version,
    whose delete would take the machine out.
    """
    names = list[str]()
    for machines in ((TWO,), ({**TWO, "address": "fd00::2"},), SERVERS):
        result = deployed(tmp_path, *machines)
        (mark,) = (r for r in result.resources if r.name.startswith("node-gpu2-begun"))
        assert [alias.spec.name for alias in mark.request.aliases] == ["node-gpu2-begun"]
        names.append(mark.name)
    address = TWO["address"]
    assert names == [
        f"node-gpu2-begun-{word}" for word in (address, "fd00..2", f"{address}-server")
    ]


def test_machine_is_examined_with_the_server_before_it_is_changed(tmp_path: Path) -> None:
    """The doctor examines each further machine before it is changed. The other machines are not in
    its plan, so it is not examined again when one of them changes. A lost machine is not examined.
    """
    result = deployed(tmp_path, TWO, THREE)
    assert "node-gpu2-doctor-host" in before(result, "node-gpu2-k3s")
    assert "cluster-k3s" not in before(result, "node-gpu2-doctor-host")
    plan = Plan.from_json(result.one("node-gpu2-doctor-host").inputs["stdin"])
    assert [machine.name for machine in plan.machines] == ["gpu2"]
    assert (plan.only, plan.scope, plan.expect.several) == ("gpu2", "host", True)
    assert plan.machines[0].ssh.host_key == KEY
    own = Plan.from_json(result.one("doctor-host").inputs["stdin"])
    assert (own.machines, own.expect.several) == ((), True)
    gone = deployed(tmp_path, {**TWO, "gone": True})
    assert not [r for r in gone.resources if r.name.startswith("node-gpu2-doctor")]


def test_another_machine_changes_no_resource_of_the_others(tmp_path: Path) -> None:
    """A further machine adds its own resources and changes none of the others. Only the first one
    of them changes the plan of the first machine's doctor.
    """
    cases = ((), (TWO,), (TWO, THREE))
    alike = {"lostNodes": "wait", "nodeHealth": "report"}  # their defaults differ by the number
    none, one, both = (deployed(tmp_path, *nodes, **alike) for nodes in cases)
    for less, more, added in ((none, one, "node-gpu2"), (one, both, "node-gpu3")):
        inputs = {resource.name: resource.inputs for resource in less.resources}
        now = {resource.name: resource.inputs for resource in more.resources}
        new = {name for name in now if name not in inputs}
        doctor = f"{added}-doctor"
        assert new == {
            added,
            f"{added}-begun-{(TWO if less is none else THREE)['address']}",
            f"{added}-files",
            f"{added}-k3s",
            doctor,
            f"{doctor}-host",
        }
        same = {name for name in inputs if now[name] == inputs[name]}
        # With a further machine, the first one need no longer have all GPUs itself.
        assert set(inputs) - same == ({"doctor-host"} if less is none else set())


def test_machines_are_reached_past_the_proxy(tmp_path: Path) -> None:
    """Pods and the server reach all machines without the proxy, and each machine reaches the server
    so. A machine that is added changes no other machine and no pods.
    """
    proxy = {"httpProxy": "http://proxy:3128", "lostNodes": "wait"}
    one, both = (deployed(tmp_path, *nodes, **proxy) for nodes in ((TWO,), (TWO, THREE)))
    base = "10.1.2.3,10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost"
    assert both.one("proxy-config-map").inputs["data"]["NO_PROXY"] == f"{base},10.1.2.4,10.1.2.5"
    assert f"export NO_PROXY={base},10.1.2.4,10.1.2.5\n" in both.one("cluster-k3s").program
    for name, address in (("gpu2", "10.1.2.4"), ("gpu3", "10.1.2.5")):
        assert job(both, name)["variables"]["agent"]["NO_PROXY"] == f"{base},{address}"
    assert changed(one, both) == {"cluster-k3s", "proxy-config-map"}


def test_machine_is_replaced_with_its_address_and_with_the_cluster(tmp_path: Path) -> None:
    """A machine joins anew if its name, its address or the cluster is another one, and leaves
    before that.
    """
    result = deployed(tmp_path, TWO)
    command = result.one("node-gpu2-k3s")
    assert command.inputs["triggers"] == ["gpu2", "10.1.2.4", f"{MARK}-id"]
    assert command.request.deleteBeforeReplace


def test_machine_gets_what_the_server_gets(tmp_path: Path) -> None:
    """A further machine gets the same version of k3s, mirror, proxy and authorities as the
    server.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    changes = {"httpProxy": "http://proxy:3128", "k3sMirror": "https://mirror.example/k3s"}
    result = deployed(tmp_path, TWO, **changes, caBundle=str(authority))
    server = result.one("cluster-k3s").inputs["stdin"]
    variables = job(result, "gpu2")["variables"]["agent"]
    for name in ("K3S_VERSION", "K3S_MIRROR", "HTTP_PROXY", "OWNER"):
        assert variables[name], name
        assert f"export {name}={variables[name]}" in server.replace("'", ""), name
    assert variables["SERVER_URL"] == "https://10.1.2.3:6443"
    assert "trust-bundle" in {r.name for r in result.resources}
    trusts = (
        re.sub(r"export (NODE|REPAIR_ID)=\S+\n", "", result.one(name).inputs["stdin"])
        for name in ("trust-bundle", "node-gpu2-trust-bundle")
    )
    assert len(set(trusts)) == 1


def test_job_holds_labels_and_taints_and_no_token(tmp_path: Path) -> None:
    """The job of a machine contains its labels and taints, but not the token for joining."""
    marks = {"labels": {"rack": "a", "arch": "x"}, "taints": ["a=b:NoSchedule", "c:NoExecute"]}
    variables = job(deployed(tmp_path, {**TWO, **marks}), "gpu2")["variables"]
    assert variables["member"]["LABELS"] == "arch=x\nrack=a"
    for name in ("member", "agent"):
        assert variables[name]["TAINTS"] == "a=b:NoSchedule\nc:NoExecute"
    assert "K3S_TOKEN" not in variables["agent"]


def test_each_machine_has_the_interface_that_was_named_for_it(tmp_path: Path) -> None:
    """k3s and the doctor use the interface that the settings name for the machine. If none is
    named, k3s takes the interface of the default route.
    """
    result = deployed(tmp_path, {**TWO, "interface": "eth1"}, THREE, nodeInterface="bond0")
    assert "export NODE_INTERFACE=bond0" in result.one("cluster-k3s").inputs["stdin"]
    assert "flannel-iface" in result.one("cluster-k3s").inputs["stdin"]
    for name, interface in (("gpu2", "eth1"), ("gpu3", "")):
        assert job(result, name)["variables"]["agent"]["NODE_INTERFACE"] == interface
        plan = Plan.from_json(result.one(f"node-{name}-doctor-host").inputs["stdin"])
        assert (plan.expect.node_interface, plan.machines[0].interface) == ("bond0", interface)
    plain = deployed(tmp_path, TWO).one("cluster-k3s").inputs["stdin"]
    assert "export NODE_INTERFACE=''" in plain


def test_input_of_the_command_is_a_secret(tmp_path: Path) -> None:
    """The job of a machine is a secret for the engine, because it contains the SSH key and sudo's
    password.
    """
    command = deployed(tmp_path, TWO).one("node-gpu2-k3s")
    assert "AAAAC3NzaC1lZDI1NTE5AAAAIExample" in command.inputs["stdin"]
    assert "AAAAC3NzaC1lZDI1NTE5AAAAIExample" not in json.dumps(without_secrets(command.wire))


def test_other_authorities_restart_k3s_on_every_machine(tmp_path: Path) -> None:
    """Other authorities change the command that installs k3s, on every machine, and are trusted
    before it runs. containerd reads them only at its start; the scripts restart k3s for that, see
    tests/unit/node/test_changed_k3s.py.
    """

    def trusting(name: str, text: str) -> Deployment:
        file = tmp_path / f"{name}.pem"
        file.write_text(text)
        return deployed(tmp_path, TWO, caBundle=str(file))

    without = deployed(tmp_path, TWO)
    one, other = trusting("one", AUTHORITY), trusting("other", OTHER_AUTHORITY)
    commands = {"cluster-k3s", "node-gpu2-k3s"}
    assert commands <= changed(without, one)
    assert commands <= changed(one, other)
    assert "trust-bundle" in before(one, "cluster-k3s")
    assert "node-gpu2-trust-bundle" in before(one, "node-gpu2-k3s")


@pytest.mark.parametrize("name", ["node-gpu2-k3s", "cluster-k3s"])
def test_k3s_removal_waits_for_saves(name: str, tmp_path: Path) -> None:
    """The engine does not end the removal of a k3s while pods still save. The setting
    `terminationGraceSeconds` may be longer than the ten or twenty minutes that it used to have.
    """
    limits = deployed(tmp_path, TWO).one(name).request.customTimeouts
    assert limits.delete == "86400s"

"""What the real program tells the engine about further machines."""

import functools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pulumi
import pytest

from infra.deliveries import DELIVERIES
from infra.node.doctor_plan import Plan
from infra.node.k3s_look import K3sLook
from tests.unit.airgap.stocked import stock
from tests.unit.stacks import (
    Deployment,
    RecordingMonitor,
    deploy,
    raw_settings,
    run_with,
    without_secrets,
)
from tests.unit.test_k3s_program import SSH
from tests.unit.test_program import everything_before, training_template, variables

MARK = "cluster-remote-generation"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample"
TWO = {"name": "gpu2", "address": "10.1.2.4", "host_key": KEY}
THREE = {"name": "gpu3", "address": "10.1.2.5", "host_key": KEY}
FITTING: dict[str, object] = {
    **SSH,
    "topology": "single-pod",  # of the default there is a test of its own
    "storageOptions": {"shared": True},
    "imageDelivery": "registry",
    "imageRepository": "registry.example.org/team/trainer",
}

IMPORTED: dict[str, object] = {
    "imageDelivery": "import",
    "imageRepository": "localhost/disttrain/trainer",
}


def deployed(_: Path, *nodes: object, **changes: object) -> Deployment:
    """What these machines make. The same settings are deployed once: that takes half a second.

    So a test that changes a part of the program calls `deploy` itself.
    """
    return _deployed(json.dumps({**FITTING, "nodes": [*nodes], **changes}))


@functools.cache
def _deployed(settings: str) -> Deployment:
    with patch("infra.platform.agents.look_at_k3s", lambda *_, **__: K3sLook("repair-1", "")):
        return deploy("dev", Path("none of this machine's files"), json.loads(settings))


def job(result: Deployment, name: str) -> dict[str, Any]:
    return json.loads(result.one(f"node-{name}-k3s").inputs["stdin"])


def before(result: Deployment, name: str) -> set[str]:
    return everything_before(result, result.one(name))


def test_machines_wait_for_the_server_and_not_for_each_other(tmp_path: Path) -> None:
    result = deployed(tmp_path, TWO, THREE)
    for name, other in (("gpu2", "gpu3"), ("gpu3", "gpu2")):
        first = before(result, f"node-{name}-k3s")
        assert "cluster-k3s" in first
        assert f"node-{other}-k3s" not in first
        assert not [name for name in first if name.startswith("namespace")]
    assert {"node-gpu2-k3s", "node-gpu3-k3s"} <= before(result, "destroy-guard-look")
    assert {"node-gpu2-k3s", "node-gpu3-k3s"} <= before(result, "training-hand-over")


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
    authority.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
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
    authority.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    (tmp_path / "bundle").mkdir()
    changes = {**FITTING, "caBundle": str(authority), "nodes": [TWO]}
    changes |= {"bundle": str(stock(tmp_path / "bundle"))}
    changes |= {"storage": "nfs-first-node", "storageOptions": {}}
    names = [f"node-gpu2-{end}" for end in ("trust-bundle", "bundle-stage", "nfs-client")]

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
    for result in (away, lost):  # its commands stay as they are, but that of k3s
        assert {*result.one(sent).request.ignoreChanges} == {"triggers"}
        for name in names:
            assert {*result.one(name).request.ignoreChanges} == {"stdin"}


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


def test_files_of_k3s_come_beside_the_installation_of_the_first(tmp_path: Path) -> None:
    """M1: what takes long is done on all machines at one time, after each one's examination."""
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    result = deployed(tmp_path, TWO, THREE, caBundle=str(authority))
    for name in ("gpu2", "gpu3"):
        first = before(result, f"node-{name}-files")
        assert {f"node-{name}-doctor-host", f"node-{name}-trust-bundle"} <= first
        assert "cluster-k3s" not in first
        assert "cluster-k3s" not in before(result, f"node-{name}")  # nor its component, as parent
        assert f"node-{name}-files" in before(result, f"node-{name}-k3s")
        command = result.one(f"node-{name}-files").inputs
        assert command["create"].endswith("infra.node.agent prepare")
        assert command["delete"].endswith("infra.node.agent unprepare")
    marked = deployed(tmp_path, {**TWO, "labels": {"a": "b"}, "taints": ["a:NoSchedule"]}, THREE)
    plain = deployed(tmp_path, TWO, THREE)
    assert changed(plain, marked) == {"node-gpu2-k3s"}


SERVERS = [
    {**TWO, "role": "server"},
    {**THREE, "role": "server"},
    {"name": "gpu4", "address": "10.1.2.6", "host_key": KEY},
    {"name": "gpu5", "address": "10.1.2.7", "host_key": KEY},
]


def test_servers_join_one_after_the_other_and_agents_after_them(tmp_path: Path) -> None:
    """The engine takes them away in the reverse order, the first machine last."""
    result = deployed(tmp_path, *SERVERS)
    first = {name: before(result, f"node-{name}-k3s") for name in ("gpu2", "gpu3", "gpu4", "gpu5")}
    assert "cluster-k3s" in first["gpu2"]
    assert not [name for name in first["gpu2"] if name.startswith(("node-gpu3-k3s", "node-gpu4"))]
    assert "node-gpu2-k3s" in first["gpu3"]
    for name, other in (("gpu4", "gpu5"), ("gpu5", "gpu4")):
        assert {"node-gpu2-k3s", "node-gpu3-k3s"} <= first[name]
        assert f"node-{other}-k3s" not in first[name]
    assert "node-gpu3-k3s" in before(result, "destroy-guard-look")
    # one that is lost is forgotten before another one joins, wherever it stands in the list
    lost = deployed(tmp_path, SERVERS[0], {**SERVERS[1], "gone": True}, SERVERS[2])
    assert "node-gpu3-k3s" in before(lost, "node-gpu2-k3s")


def test_first_machine_keeps_its_data_in_etcd_where_others_are_servers(tmp_path: Path) -> None:
    """Nothing of it changes when one more comes, so that it is not restarted."""
    none, both = (deployed(tmp_path, *nodes) for nodes in (SERVERS[2:], SERVERS))
    assert "export CLUSTER_INIT" not in none.one("cluster-k3s").program
    assert "export CLUSTER_INIT=1\n" in both.one("cluster-k3s").program
    more = [
        {**node, "name": f"{node['name']}0", "address": f"{node['address']}0"} for node in SERVERS
    ]
    assert changed(both, deployed(tmp_path, *SERVERS, *more[:2])) == set()


def test_server_gets_what_servers_have_to_agree_in_and_agents_do_not(tmp_path: Path) -> None:
    """Networks, and the addresses in its certificate: its own and that of the cluster."""
    changes = {"nodeAddress": "10.9.9.9", "podCidr": "10.44.0.0/16", "httpProxy": "http://proxy:1"}
    result = deployed(tmp_path, *SERVERS, **changes)
    server = job(result, "gpu2")
    variables = server["variables"]["agent"]
    assert variables["POD_CIDR"] == "10.44.0.0/16"
    assert variables["SERVICE_CIDR"] == "10.43.0.0/16"
    assert variables["TLS_SAN"] == "10.9.9.9 10.1.2.4"
    assert variables["SERVER_URL"] == "https://10.9.9.9:6443"
    for address in ("10.1.2.4", "10.1.2.5", "10.1.2.6", "10.1.2.7"):
        assert address in variables["NO_PROXY"]  # its API server asks the kubelets of all
    assert "K3S_EXEC=server" in server["scripts"]["agent"]
    assert (server["role"], server["variables"]["look"]) == ("server", {"ROLE": "server"})
    assert server["variables"]["member"]["ROLE"] == "server"
    agent = job(result, "gpu4")
    assert not {"POD_CIDR", "TLS_SAN", "ROLE"} & agent["variables"]["agent"].keys()
    assert "K3S_EXEC=agent" in agent["scripts"]["agent"]
    assert "role" not in agent


def test_machine_leaves_in_its_old_role_before_it_joins_in_another(tmp_path: Path) -> None:
    agent, server = (deployed(tmp_path, *nodes) for nodes in ((TWO, THREE), SERVERS[:2]))
    triggers = [each.one("node-gpu2-k3s").inputs["triggers"] for each in (agent, server)]
    assert triggers == [
        ["gpu2", "10.1.2.4", f"{MARK}-id"],
        ["gpu2", "10.1.2.4", f"{MARK}-id", "server"],
    ]


def test_server_is_examined_with_the_servers_before_it(tmp_path: Path) -> None:
    """Their etcds talk to each other; a later one changes no plan of an earlier one."""
    result = deployed(tmp_path, *SERVERS)
    plans = {
        name: Plan.from_json(result.one(f"node-{name}-doctor-host").inputs["stdin"])
        for name in ("gpu2", "gpu3", "gpu4")
    }
    names = {
        name: [(machine.name, machine.is_server) for machine in plan.machines]
        for name, plan in plans.items()
    }
    assert names == {
        "gpu2": [("gpu2", True)],
        "gpu3": [("gpu2", True), ("gpu3", True)],
        "gpu4": [("gpu4", False)],
    }


def test_machine_is_examined_with_the_server_before_it_is_changed(tmp_path: Path) -> None:
    """The others are not in its plan, so that it is not examined anew when one of them changes."""
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
    """M2 of the goals: adding one host plans its own resources and nothing else."""
    cases = ((), (TWO,), (TWO, THREE))
    alike = {"lostNodes": "wait", "nodeHealth": "report"}  # which go by the number of machines
    none, one, both = (deployed(tmp_path, *nodes, **alike) for nodes in cases)
    for less, more, added in ((none, one, "node-gpu2"), (one, both, "node-gpu3")):
        inputs = {resource.name: resource.inputs for resource in less.resources}
        now = {resource.name: resource.inputs for resource in more.resources}
        new = {name for name in now if name not in inputs}
        doctor = f"{added}-doctor"
        assert new == {added, f"{added}-files", f"{added}-k3s", doctor, f"{doctor}-host"}
        same = {name for name in inputs if now[name] == inputs[name]}
        # With the first further machine the host need no longer have all GPUs itself.
        assert set(inputs) - same == ({"doctor-host"} if less is none else set())


def test_machines_are_reached_past_the_proxy(tmp_path: Path) -> None:
    """By pods, and by k3s: the server asks all of them, and each of them the server.

    An added one then changes no other one, and makes no other pods.
    """
    proxy = {"httpProxy": "http://proxy:3128", "lostNodes": "wait"}
    one, both = (deployed(tmp_path, *nodes, **proxy) for nodes in ((TWO,), (TWO, THREE)))
    base = "10.1.2.3,10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost"
    assert both.one("proxy-config-map").inputs["data"]["NO_PROXY"] == f"{base},10.1.2.4,10.1.2.5"
    assert f"export NO_PROXY={base},10.1.2.4,10.1.2.5\n" in both.one("cluster-k3s").program
    for name, address in (("gpu2", "10.1.2.4"), ("gpu3", "10.1.2.5")):
        assert job(both, name)["variables"]["agent"]["NO_PROXY"] == f"{base},{address}"
    assert changed(one, both) == {"cluster-k3s", "proxy-config-map"}


def changed(before: Deployment, after: Deployment) -> set[str]:
    """The resources of both whose inputs are not the same."""
    inputs = {resource.name: resource.inputs for resource in after.resources}
    return {each.name for each in before.resources if inputs[each.name] != each.inputs}


def test_machine_is_replaced_with_its_address_and_with_the_cluster(tmp_path: Path) -> None:
    result = deployed(tmp_path, TWO)
    command = result.one("node-gpu2-k3s")
    assert command.inputs["triggers"] == ["gpu2", "10.1.2.4", f"{MARK}-id"]
    assert command.request.deleteBeforeReplace


def test_machine_gets_what_the_server_gets(tmp_path: Path) -> None:
    """Version, checksums, mirror, registries, proxy and authorities."""
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
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
    marks = {"labels": {"rack": "a", "arch": "x"}, "taints": ["a=b:NoSchedule", "c:NoExecute"]}
    variables = job(deployed(tmp_path, {**TWO, **marks}), "gpu2")["variables"]
    assert variables["member"]["LABELS"] == "arch=x\nrack=a"
    for name in ("member", "agent"):
        assert variables[name]["TAINTS"] == "a=b:NoSchedule\nc:NoExecute"
    assert "K3S_TOKEN" not in variables["agent"]


def test_each_machine_has_the_interface_that_was_named_for_it(tmp_path: Path) -> None:
    """For k3s and for the doctor; where none is named, k3s takes that of the default route."""
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
    """It holds the key and sudo's password."""
    command = deployed(tmp_path, TWO).one("node-gpu2-k3s")
    assert "AAAAC3NzaC1lZDI1NTE5AAAAIExample" in command.inputs["stdin"]
    assert "AAAAC3NzaC1lZDI1NTE5AAAAIExample" not in json.dumps(without_secrets(command.wire))


def test_storage_that_pods_would_not_find_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pulumi.RunError, match="folder of the first machine"):
        deployed(tmp_path, TWO, storageOptions={})


def test_delivery_to_the_first_machine_alone_is_refused(tmp_path: Path) -> None:
    """A kind of one's own may know one machine only."""
    kind = replace(DELIVERIES["import"], serves_further=False)
    with (
        patch.object(DELIVERIES, "_kinds", {"import": kind}),
        pytest.raises(pulumi.RunError, match="image only to the first machine"),
    ):
        deploy("dev", tmp_path, {**FITTING, "nodes": [TWO], **IMPORTED})


def test_pods_of_lost_machines_are_given_up_where_there_are_several(tmp_path: Path) -> None:
    """The pod that does it starts from the platform's image, with an account that may do that."""
    assert not [r for r in deployed(tmp_path).resources if r.name.startswith("lost-nodes")]
    result = deployed(tmp_path, TWO)
    first = before(result, "lost-nodes-deployment")
    assert {"lost-nodes-role-binding", "lost-nodes-program"} <= first
    assert [name for name in first if name.startswith("image-")]
    spec = result.one("lost-nodes-deployment").inputs["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"].startswith("registry.example.org/team/trainer:")
    program = result.one("lost-nodes-program").inputs
    assert container["command"][-1].split(".")[-1] + ".py" in program["data"]
    assert program["metadata"]["name"] == spec["volumes"][0]["configMap"]["name"]
    rules = result.one("lost-nodes-role").inputs["rules"]
    assert {rule["resources"][0]: rule["verbs"] for rule in rules} == {
        "pods": ["list", "delete"],
        "pods/status": ["patch"],
    }


def watch_of(result: Deployment) -> tuple[bool, set[str]]:
    """Whether the pods that watch the machines cordon, and what their account may change."""
    (container,) = result.one("node-health-daemon-set").inputs["spec"]["template"]["spec"][
        "containers"
    ]
    roles = [
        r for r in result.resources if r.name.startswith("node-health-") and "rules" in r.inputs
    ]
    rules = [rule for role in roles for rule in role.inputs["rules"]]
    may = {rule["resources"][0] for rule in rules if {"patch", "create"} & set(rule["verbs"])}
    return "--cordon" in container["command"], may


def test_machines_are_watched_and_cordoned_where_others_can_take_the_work(tmp_path: Path) -> None:
    """On one machine a cordon would only end the training; a cluster of others is left alone."""
    assert watch_of(deployed(tmp_path)) == (False, {"pods/status"})
    all_of_it = {"pods/status", "pods/eviction", "nodes"}
    assert watch_of(deployed(tmp_path, TWO)) == (True, all_of_it)
    assert watch_of(deployed(tmp_path, nodeHealth="cordon")) == (True, all_of_it)
    assert watch_of(deployed(tmp_path, TWO, nodeHealth="report")) == (False, {"pods/status"})
    for none in (deployed(tmp_path, TWO, nodeHealth="off"), deploy("sandbox", tmp_path)):
        assert not [r for r in none.resources if r.name.startswith("node-health")]


def test_pods_that_watch_see_the_gpus_and_run_where_these_are(tmp_path: Path) -> None:
    """By the runtime class that the operator's toolkit, or k3s, makes."""
    spec = deployed(tmp_path).one("node-health-daemon-set").inputs["spec"]["template"]["spec"]
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    plain = deploy("sandbox", tmp_path, {"nodeHealth": "report"}).one("node-health-daemon-set")
    spec = plain.inputs["spec"]["template"]["spec"]
    assert {"runtimeClassName", "nodeSelector"} & set(spec) == set()


def test_image_is_imported_to_every_machine_that_has_joined(tmp_path: Path) -> None:
    """M5: one command for each, and a machine that is added changes none of the others'."""
    result = deployed(tmp_path, TWO, THREE, **IMPORTED)
    for name in ("gpu2", "gpu3"):
        ensure = result.one(f"image-ensure-{name}")
        first = everything_before(result, ensure)
        assert {"node-gpu2-k3s", "node-gpu3-k3s", "cluster-k3s"} <= first
        way = json.loads(ensure.inputs["environment"]["DISTTRAIN_NODE"])
        assert way["ssh"]["host"] == {"gpu2": "10.1.2.4", "gpu3": "10.1.2.5"}[name]
        assert ensure.inputs["create"] == result.one("image-ensure").inputs["create"]
        assert f"image-ensure-{name}" in before(result, "training-job")
    less = deployed(tmp_path, TWO, **IMPORTED)
    for name in ("image-ensure", "image-ensure-gpu2"):
        assert less.one(name).inputs == result.one(name).inputs
    gone = deployed(tmp_path, {**TWO, "gone": True}, **IMPORTED).one("image-ensure-gpu2")
    assert gone.request.retainOnDelete


def test_run_that_leaves_machines_idle_is_told_how_to_use_them(tmp_path: Path) -> None:
    """Where the settings say `single-pod`, also on another stack's platform."""

    def notes(**changes: object) -> list[str]:
        said: list[str] = []
        with (
            patch("infra.platform.agents.look_at_k3s", lambda *_, **__: K3sLook("repair-1", "")),
            patch("infra.preflight.pulumi.log.info", said.append),
        ):
            deploy("dev", tmp_path, {**FITTING, **changes})
        return said

    assert notes(nodes=[TWO, THREE]) == [
        "this run has one pod (topology: single-pod), so it trains on one machine, and the "
        "platform has 2 more. To train on all 3: set topology: indexed-job, pods: 3, and gpus to "
        "the GPUs of all of them (docs/one-to-many.md)"
    ]
    several = {"topology": "indexed-job", "pods": 2, "gpus": 2, "gpusPerPod": 1}
    gone = [{**TWO, "gone": True}]
    for changes in ({"nodes": []}, {"nodes": [TWO], **several}, {"nodes": gone}):
        assert notes(**changes) == []
    assert notes(nodes=[TWO], topology="none") == []


@pytest.mark.parametrize(
    ("nodes", "changes", "chosen", "said"),
    [
        ([TWO, THREE], {}, ("indexed-job", 3), ""),
        ([TWO, {**THREE, "gone": True}], {}, ("indexed-job", 2), ""),
        ([], {}, ("single-pod", 1), ""),
        ([TWO], {"topology": "single-pod"}, ("single-pod", 1), "the platform has 1 more"),
        ([TWO], {"topology": "multi-pod"}, ("multi-pod", 2), ""),
        ([], {"topology": "multi-pod", "gpusPerPod": 1}, ("multi-pod", 3), ""),
    ],
)
def test_run_elsewhere_knows_the_platforms_machines(
    tmp_path: Path,
    nodes: list[object],
    changes: dict[str, object],
    chosen: tuple[str, int],
    said: str,
) -> None:
    """It had one pod, as `nodes` is a setting of the stack that owns the platform."""
    outputs = deployed(tmp_path, *nodes, gpus=6).outputs
    monitor, notes = RecordingMonitor(dict(outputs)), list[str]()
    with patch("infra.preflight.pulumi.log.info", notes.append):
        run_with(monitor, "multipod", raw_settings("multipod", {"topology": "auto", **changes}))
    pods = variables(training_template(monitor.deployment))["PET_NNODES"]
    assert (monitor.deployment.outputs["topology"], int(pods)) == chosen
    assert said in "".join(notes)
    assert bool(notes) is bool(said)


def test_image_that_each_machine_would_build_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pulumi.RunError, match="imageBuildOn: 'node' cannot be used: nodes lists"):
        deployed(tmp_path, TWO, imageBuildOn="node", **IMPORTED)

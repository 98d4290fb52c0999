"""The network profiles `multus` and `rdma`: what a training pod gets, what is refused, and the look
for what the cluster must have.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.kube.paths import NAMESPACES
from infra.kube.pods.room import pod_needs, room_problem
from infra.kube.runs.attachments_findings import PATH, attachments_findings
from infra.names import ATTACHMENTS_ANNOTATION, EFA_RESOURCE, GPU_RESOURCE
from tests.unit.kube.pods.instances import P4D, SYSTEM
from tests.unit.kube.server import ApiServer, api_of
from tests.unit.networks.rendered import Json, one_training_pod, training_pods
from tests.unit.settings.reading import read, refusal
from tests.unit.stacks import deploy

PODS = {"topology": "indexed-job", "pods": 2, "gpus": 16, "gpusPerPod": 8}
NET = "/apis/k8s.cni.cncf.io/v1"


def with_network(name: str, **options: object) -> dict[str, object]:
    return {**PODS, "network": name, "networkOptions": options}


def variables(pod: Json) -> dict[str, str]:
    (container,) = pod["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container["env"]}


@pytest.mark.parametrize("topology", ["multi-pod", "trainjob", "mpijob"])
def test_multus_gives_the_ranks_its_interface(tmp_path: Path, topology: str) -> None:
    """The pods of every kind of workload name the network for Multus, and NCCL and gloo use the
    interface of the first one. Otherwise they would use the slower network of the pods.
    """
    settings = {**with_network("multus", attachments="fast, ml/slow"), "topology": topology}
    settings["k3sExisting"] = "adopt"  # which may have the controller
    pods = training_pods(deploy("dev", tmp_path, settings))
    assert pods
    for pod in pods:
        assert pod["metadata"]["annotations"][ATTACHMENTS_ANNOTATION] == "fast, ml/slow"
        found = variables(pod)
        assert found["NCCL_SOCKET_IFNAME"] == found["GLOO_SOCKET_IFNAME"] == "net1"
        assert found["NCCL_IB_DISABLE"] == "1"
        assert found["DISTTRAIN_TRANSPORTS"] == "socket"


def test_interface_has_the_name_of_the_annotation(tmp_path: Path) -> None:
    pod = one_training_pod(tmp_path, with_network("multus", attachments="ml/fast@roce0,slow"))
    found = variables(pod)
    assert found["NCCL_SOCKET_IFNAME"] == found["GLOO_SOCKET_IFNAME"] == "roce0"


@pytest.mark.parametrize(
    ("options", "interface"), [({}, "eth0"), ({"attachments": "default/ib"}, "net1")]
)
def test_rdma_gives_devices_and_leaves_infiniband_on(
    tmp_path: Path, options: dict[str, object], interface: str
) -> None:
    """A pod with RDMA has its devices, and NCCL may use them. Gloo, which has only TCP, stays in
    the network of the pods. No capability is added, since it would have no effect.
    """
    asked = with_network("rdma", resource="rdma/hca", devices=4, **options)
    pod = one_training_pod(tmp_path, asked)
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {GPU_RESOURCE: "8", "rdma/hca": "4"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    found = variables(pod)
    assert "NCCL_IB_DISABLE" not in found
    assert found["DISTTRAIN_TRANSPORTS"] == "ib,roce"
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == (interface, "eth0")
    attached = pod["metadata"].get("annotations", {}).get(ATTACHMENTS_ANNOTATION)
    assert attached == options.get("attachments")


@pytest.mark.parametrize(
    ("network", "options", "said"),
    [
        ("multus", {}, "networkOptions.attachments: '' cannot be used: network: multus needs it"),
        ("multus", {"attachments": "Fast"}, "attachments: 'Fast' cannot be used: Multus reads"),
        ("multus", {"attachments": "a,,b"}, "attachments: 'a,,b' cannot be used: Multus reads"),
        ("multus", {"attachments": "a.b"}, "attachments: 'a.b' cannot be used: Multus reads"),
        ("multus", {"attachments": "a@."}, "attachments: 'a@.' cannot be used: Multus reads"),
        ("multus", {"attachments": "a@eth0"}, "each pod has an interface eth0 already. Give"),
        ("multus", {"attachments": "a,b@lo"}, "each pod has an interface lo already. Give"),
        ("multus", {"attachments": "a@x, b@x"}, "two of the networks would have the interface x"),
        (
            "multus",
            {"attachments": "a,b@net1"},
            "two of the networks would have the interface net1",
        ),
        (
            "multus",
            {"attachments": "a@net2,b"},
            "two of the networks would have the interface net2",
        ),
        ("rdma", {}, "networkOptions.resource: '' cannot be used: network: rdma needs it"),
        ("rdma", {"resource": GPU_RESOURCE}, "it is a GPU, and the pods get those by gpusPerPod"),
        ("rdma", {"resource": "nvidia.com/mig-1g.5gb"}, "it is a GPU, and the pods get those by"),
        ("rdma", {"resource": "a..b/hca"}, "resource: 'a..b/hca' cannot be used: a resource of a"),
        ("rdma", {"resource": "kubernetes.io/a"}, "cannot be used: a resource of a device plugin"),
        ("rdma", {"resource": "requests.rdma/a"}, "cannot be used: a resource of a device plugin"),
        ("rdma", {"resource": f"rdma/{'a' * 64}"}, "cannot be used: a resource of a device plugin"),
        ("rdma", {"resource": "hca"}, "resource: 'hca' cannot be used: a resource of a device"),
        ("rdma", {"resource": "rdma/hca", "devices": 0}, "devices: 0 cannot be used: without a"),
        ("rdma", {"resource": "rdma/hca", "attachments": "A"}, "attachments: 'A' cannot be used"),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, network: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        deploy("dev", tmp_path, with_network(network, **options))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ("multus", {"attachments": "fast"}),
        ("rdma", {"resource": "rdma/hca", "attachments": "fast"}),
    ],
)
def test_own_annotation_of_multus_is_refused(network: str, options: dict[str, object]) -> None:
    """A user's own annotation would take the place of the profile's, and the ranks would look for
    the interface of a network that their pods do not have.
    """
    own = {"podAnnotations": {ATTACHMENTS_ANNOTATION: "other"}}
    (line,) = refusal({**with_network(network, **options), **own}).splitlines()[1:]
    assert (
        f"podAnnotations.{ATTACHMENTS_ANNOTATION}: 'other' cannot be used: network: {network}"
        in (line)
    )
    assert "name all networks in networkOptions.attachments" in line


def test_own_annotation_of_multus_stands_alone() -> None:
    """Where the network profile adds no second network, the user's own annotation is accepted."""
    own = {"podAnnotations": {ATTACHMENTS_ANNOTATION: "other"}}
    assert read({**with_network("rdma", resource="rdma/hca"), **own}).run
    assert read({**PODS, **own}).run


def test_contradiction_in_a_secret_is_refused() -> None:
    """A secret variable takes the network from the ranks, too. Its value is not shown."""
    settings = with_network("rdma", resource="rdma/hca")
    said = refusal({**settings, "podSecrets": {"NCCL_IB_DISABLE": "1"}}, ["podSecrets"])
    assert "podSecrets.NCCL_IB_DISABLE: [secret] cannot be used: network: rdma" in said
    assert "pulumi config rm --path podSecrets.NCCL_IB_DISABLE" in said


def test_rdma_is_refused_for_a_run_that_cannot_use_it(tmp_path: Path) -> None:
    """One pod needs no network, and would hold devices that others need."""
    with pytest.raises(pulumi.RunError, match="the run has one pod"):
        deploy("dev", tmp_path, {**with_network("rdma", resource="rdma/hca"), "pods": 1})


@pytest.mark.parametrize(
    ("network", "variable", "value", "refused"),
    [
        ("rdma", "NCCL_IB_DISABLE", "1", True),
        ("rdma", "NCCL_IB_DISABLE", "0", False),
        ("rdma", "NCCL_NET", "Socket", True),
        ("rdma", "NCCL_NET", "socket", True),
        ("rdma", "NCCL_NET", "IB", False),
        ("efa", "NCCL_NET", "Socket", True),
        ("efa", "NCCL_NET", "AWS Libfabric", False),
        ("efa", "FI_PROVIDER", "tcp", True),
        ("multus", "NCCL_IB_DISABLE", "0", False),
        ("pod-tcp", "NCCL_IB_DISABLE", "0", False),
    ],
)
def test_variable_that_contradicts_the_network_is_refused(
    network: str, variable: str, value: str, refused: bool
) -> None:
    """A variable of the user that takes the profile's network from the ranks is refused. Otherwise
    they would use another one, and hold the devices for nothing. Where the profile gives the pods
    no device, such a variable may be what an image of the user needs.
    """
    options: dict[str, dict[str, object]] = {
        "rdma": {"resource": "rdma/hca"},
        "efa": {"devices": 4},
        "multus": {"attachments": "fast"},
        "pod-tcp": {},
    }
    settings = {**with_network(network, **options[network]), "podEnvironment": {variable: value}}
    if not refused:
        read(settings)
        return
    said = refusal(settings)
    assert said.count("\n") == 1, said
    assert f"podEnvironment.{variable}: {value!r} cannot be used: network: {network}" in said


def offering(node: Json, **devices: str) -> Json:
    offered = {**node["status"]["allocatable"], **{"rdma/" + k: v for k, v in devices.items()}}
    return {**node, "status": {"allocatable": offered}}


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([offering(P4D, hca="4")] * 2, ""),
        ([offering(P4D, hca="1")], "network: a pod asks for 4 rdma/hca, and no node"),
        ([offering(P4D, hca="1")], "(ip-p4d.24xlarge: 1). Set less in networkOptions"),
        ([P4D], "Install the device plugin that offers rdma/hca, or choose other nodes"),
        ([offering(P4D, ib="4")], "The nodes offer rdma/ib: if one of these is meant, set its"),
        ([SYSTEM, offering(P4D, hca="4")], "room for 1 of these pods"),
    ],
)
def test_nodes_without_the_devices_are_refused(
    tmp_path: Path, nodes: list[Json], said: str
) -> None:
    """Pods that no node can give their RDMA devices are refused before anything is made. If the
    nodes offer others, these are named, because each cluster has its own names.
    """
    settings = with_network("rdma", resource="rdma/hca", devices=4)
    pod = one_training_pod(tmp_path, {**settings, "cpuPerRank": "100m"})
    problem = room_problem(nodes, pod_needs(pod["spec"], 2))
    assert said in problem
    assert bool(problem) == bool(said)
    assert EFA_RESOURCE not in problem


class Cluster(ApiServer):
    """A stand-in for an API server.

    Args:
        networks: the paths of the NetworkAttachmentDefinitions.
        has_multus: whether their kind is known.
        namespaces: the names of the namespaces.
    """

    def __init__(
        self,
        *networks: str,
        has_multus: bool = True,
        namespaces: tuple[str, ...] = ("disttrain", "ml"),
    ) -> None:
        self.networks, self.has_multus = networks, has_multus
        self.namespaces = [f"{NAMESPACES}/{name}" for name in namespaces]

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        assert (method, query, body) == ("GET", {}, None)
        if path == NET:
            known = [{"kind": "NetworkAttachmentDefinition"}]
            return {"resources": known} if self.has_multus else None
        return {"metadata": {}} if path in (*self.networks, *self.namespaces) else None


def problems(cluster: Cluster, annotation: str) -> list[str]:
    pod = {"metadata": {"annotations": {ATTACHMENTS_ANNOTATION: annotation} if annotation else {}}}
    found = attachments_findings(api_of(cluster), "disttrain", pod)
    assert not found.notes
    return found.problems


def test_networks_that_the_cluster_lacks_are_named() -> None:
    """A network of which the cluster knows nothing is refused, with the namespace in which it was
    looked for: its pods would wait for ever.
    """
    cluster = Cluster(PATH.format("disttrain", "fast"), PATH.format("ml", "slow"))
    assert problems(cluster, "fast, ml/slow@net7") == []
    assert problems(cluster, '[{"name": "fast"}, {"name": "slow", "namespace": "ml"}]') == []
    (problem,) = problems(cluster, "fast,slow")
    assert "second network slow, and the namespace disttrain has no Network" in problem
    assert "as NAMESPACE/NAME" in problem


def test_network_in_namespace_to_come_is_refused() -> None:
    """Before the first `pulumi up` of a platform its namespace is not there, so nobody can make a
    network in it, and a namespace that the user makes for that would be refused. The advice is to
    name a network of another namespace.
    """
    (problem,) = problems(Cluster(namespaces=("ml",)), "fast")
    assert "second network fast, and the namespace disttrain does not exist yet" in problem
    assert "as NAMESPACE/NAME" in problem
    assert "Make it there" not in problem


def test_cluster_without_multus_is_refused() -> None:
    (problem,) = problems(Cluster(has_multus=False), "fast")
    assert "this cluster has no Multus" in problem
    assert "set network: pod-tcp and remove networkOptions" in problem
    assert problems(Cluster(has_multus=False), "") == []

"""The network profile `efa`: what a training pod gets, and what is refused if devices are missing
or cannot be used.
"""

from dataclasses import replace
from pathlib import Path

import pulumi
import pytest

from infra.kube.pods.room import pod_needs, room_problem
from infra.names import EFA_RESOURCE, GPU_RESOURCE
from tests.unit.kube.pods.instances import P4D, P5, P5EN, P6, SYSTEM
from tests.unit.networks.rendered import Json, training_pods
from tests.unit.stacks import Deployment, deploy


def with_efa(devices: object, topology: str = "indexed-job") -> dict[str, object]:
    """Return the settings of two pods of eight GPUs each, with this number of EFA devices."""
    gpus = {"topology": topology, "pods": 2, "gpus": 16, "gpusPerPod": 8}
    return {**gpus, "network": "efa", "networkOptions": {"devices": devices}}


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Return the spec of a training pod with 32 devices."""
    settings = {**with_efa(32), "cpuPerRank": "100m"}
    (found,) = pods(deploy("dev", tmp_path_factory.mktemp("efa"), settings))
    return found


def pods(result: Deployment) -> list[Json]:
    """Return the specs of pods that train, wherever in the objects they are."""
    return [pod["spec"] for pod in training_pods(result)]


def test_pod_gets_devices_and_no_rights(pod: Json) -> None:
    """A pod with EFA gets its devices and the variables for it, but no capability and no network of
    the host, and none of the variables that old versions of NCCL needed.
    """
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {GPU_RESOURCE: "8", EFA_RESOURCE: "32"}
    found = {each["name"]: each.get("value") for each in container["env"]}
    assert found["FI_PROVIDER"] == found["DISTTRAIN_TRANSPORTS"] == "efa"
    assert found["NCCL_SOCKET_IFNAME"] == found["GLOO_SOCKET_IFNAME"] == "eth0"
    assert found["FI_EFA_USE_HUGE_PAGE"] == "0"
    never = {"NCCL_IB_DISABLE", "NCCL_PROTO", "FI_EFA_FORK_SAFE", "FI_EFA_USE_DEVICE_RDMA"}
    assert not never & found.keys()
    assert "hostNetwork" not in pod
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("topology", ["multi-pod", "trainjob", "mpijob"])
def test_every_kind_of_workload_asks_for_them(tmp_path: Path, topology: str) -> None:
    """The pods of every kind of workload request the devices. Kubeflow Trainer would drop them if
    it were given resources beside those of its own template.
    """
    settings = {**with_efa(4, topology), "k3sExisting": "adopt"}  # which may have the controller
    found = pods(deploy("dev", tmp_path, settings))
    assert found
    for pod in found:
        (container,) = pod["containers"]
        assert container["resources"]["limits"][EFA_RESOURCE] == "4"


@pytest.mark.parametrize(
    ("nodes", "devices", "said"),
    [
        ([SYSTEM, P4D, P4D], 4, ""),
        ([P5, P5], 32, ""),
        ([P5EN, P5EN], 16, ""),
        ([P6, P6], 8, ""),
        ([P4D, P4D], 32, "networkOptions.devices: a pod asks for 32 vpc.amazonaws.com/efa, and no"),
        ([SYSTEM], 4, "Install Amazon's device plugin for EFA, or choose other nodes"),
        ([P6], 8, "room for 1 of these pods"),
    ],
)
def test_nodes_without_so_many_are_refused(
    pod: Json, nodes: list[Json], devices: int, said: str
) -> None:
    """A number of devices that no node has is refused before `up`, because each type of machine has
    its own number and a pod would wait for ever.
    """
    gpus = {GPU_RESOURCE: "8"} if nodes == [SYSTEM] else {}
    nodes = [
        {**n, "status": {"allocatable": {**n["status"]["allocatable"], **gpus}}} for n in nodes
    ]
    needs = pod_needs(pod, 2)
    needs = replace(needs, requests={**needs.requests, EFA_RESOURCE: str(devices)})
    problem = room_problem(nodes, needs)
    assert said in problem
    assert bool(problem) == bool(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "networkOptions.devices: '' cannot be used: network: efa needs it. Set it"),
        ({"devices": 0}, "networkOptions.devices: 0 cannot be used: without a device the ranks"),
        ({"devices": "4"}, "network: efa takes a whole number here"),
    ],
)
def test_number_of_devices_has_to_be_said(
    tmp_path: Path, options: dict[str, object], said: str
) -> None:
    """`networkOptions.devices` must be set, because no number is right for every machine. Otherwise
    nothing is registered (`deploy` checks it).
    """
    with pytest.raises(pulumi.RunError) as refused:
        deploy("dev", tmp_path, {**with_efa(1), "networkOptions": options})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"accelerator": "cpu", "torchIndexUrl": ""},
            "network: 'efa' cannot be used: accelerator is cpu, and this profile is for NCCL, "
            "which needs GPUs. Set pod-tcp and remove networkOptions, or set accelerator: gpu",
        ),
        (
            {"topology": "single-pod", "pods": 1},
            "network: 'efa' cannot be used: the run has one pod (topology: single-pod), whose "
            "ranks need no network. Set pod-tcp and remove networkOptions, or set a topology of "
            "several pods",
        ),
        ({"pods": 1}, "the run has one pod (pods: 1), whose ranks need no network. Set pod-tcp"),
    ],
    ids=["cpu", "single-pod", "one-pod"],
)
def test_runs_that_cannot_use_them_are_refused(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    """Runs that cannot use EFA devices are refused. Otherwise they would hold the devices while
    their ranks talk over TCP, or not at all.
    """
    with pytest.raises(pulumi.RunError) as refused:
        deploy("dev", tmp_path, {**with_efa(4), **changes})
    assert said in str(refused.value)

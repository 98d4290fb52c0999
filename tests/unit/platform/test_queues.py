"""What a platform that makes a queue of Kueue registers, its quota, and what it refuses."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock, patch

import pulumi
import pytest

from infra.kube.api_server.findings import Findings
from infra.kube.errors import TaskError, UnreachableError
from infra.kube.objects import Json
from infra.kube.queues.kueue import VERSIONS
from infra.kube.queues.platform_queues_seen import (
    QueuesSeen,
    gpus_come,
    offered_in_all,
    usable,
)
from infra.kube.runs.pods_findings import RunPods
from infra.node.k3s_observation import K3sObservation
from infra.platform.queues import see_queues, see_queues_of_k3s
from tests.unit.platform.machines import FITTING, THREE, TWO
from tests.unit.settings.reading import refusal
from tests.unit.stacks import Deployment, RecordingMonitor, deploy, raw_settings, run_with

NAMED: dict[str, object] = {"queues": {"name": "gpus"}}
OBSERVED = K3sObservation("repair-1", "")
GIVEN = {"name": "gpus", "quota": {"cpu": "300m"}, "priorities": {"urgent": 1000}}
OBJECTS = ("ResourceFlavor", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass")


def amounts(made: Deployment) -> dict[str, str]:
    """Return the quota by resource."""
    (group,) = made.one("queues-cluster-queue").inputs["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    assert flavor["name"] == made.one("queues-flavor").inputs["metadata"]["name"]
    found = {each["name"]: each["nominalQuota"] for each in flavor["resources"]}
    assert list(found) == group["coveredResources"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_queue_has_all_that_kueue_needs_and_is_the_stacks_own(tmp_path: Path, version: str) -> None:
    """The platform makes all objects of a queue, in the API version that the cluster has, with the
    stack as owner. The queue takes runs of the platform's namespace only.
    """
    with patch("tests.unit.stacks.KUEUE", lambda: QueuesSeen(version, {"memory": "64Gi"})):
        made = deploy("sandbox", tmp_path, {"queues": GIVEN})
    ours = [r for r in made.resources if "kueue.x-k8s.io" in r.type]
    types = [f"kubernetes:kueue.x-k8s.io/{version}:{kind}" for kind in OBJECTS]
    assert sorted(r.type for r in ours) == sorted(types)
    owners = {r.inputs["metadata"]["labels"]["disttrain.dev/owner"] for r in ours}
    assert len(owners) == 1
    local = made.one("queues-local-queue").inputs
    assert (local["metadata"]["name"], local["metadata"]["namespace"]) == ("gpus", "disttrain")
    whole = made.one("queues-cluster-queue").inputs
    assert local["spec"]["clusterQueue"] == whole["metadata"]["name"] == "disttrain-gpus"
    inside = whole["spec"]["namespaceSelector"]["matchLabels"]
    assert inside == {"kubernetes.io/metadata.name": "disttrain"}
    urgent = made.one("queues-priority-urgent").inputs
    assert (urgent["metadata"]["name"], urgent["value"]) == ("urgent", 1000)


def test_quota_is_what_is_given_and_else_what_the_nodes_offer(tmp_path: Path) -> None:
    """The quota of a resource is what the settings say, else what the nodes offer. For GPUs that no
    node offers yet it is their number in the settings; other resources that no node offers are
    refused.
    """
    assert amounts(deploy("sandbox", tmp_path, {"queues": GIVEN})) == {
        "cpu": "300m",
        "memory": "64Gi",
    }
    gpu = {"queues": {"name": "gpus"}, "gpus": 8, "k3sExisting": "adopt"}
    assert amounts(deploy("dev", tmp_path, gpu)) == {
        "cpu": "16",
        "memory": "64Gi",
        "nvidia.com/gpu": "8",  # their number in the settings, as no node offers them yet
    }
    seen = QueuesSeen("v1beta2", {"cpu": "16", "memory": "1Gi", "nvidia.com/gpu": "6"})
    with patch("tests.unit.stacks.KUEUE", lambda: seen):
        assert amounts(deploy("dev", tmp_path, gpu))["nvidia.com/gpu"] == "6"
    more = {"name": "gpus", "quota": {"example.org/rdma": 4}}
    assert amounts(deploy("sandbox", tmp_path, {"queues": more}))["example.org/rdma"] == "4"
    with (
        patch("tests.unit.stacks.KUEUE", lambda: QueuesSeen("v1beta2", {"cpu": "16"})),
        pytest.raises(pulumi.RunError, match=r"queues.quota.memory: not set, and no node"),
    ):
        deploy("sandbox", tmp_path, gpu)


def test_quota_counts_the_machines_that_join_in_the_same_up() -> None:
    """The program reads what the nodes offer when the further machines are registered. Otherwise a
    run on all machines would ask for more than the quota, and `up` would say that it never starts.
    """
    monitor, asked = RecordingMonitor(), list[set[str]]()

    def look() -> QueuesSeen:
        asked.append({resource.name for resource in monitor.deployment.resources})
        return QueuesSeen("v1beta2", {"cpu": "16", "memory": "64Gi"})

    changes = {**FITTING, "nodes": [TWO, THREE], "controllers": ["kueue"], **NAMED}
    with (
        patch("infra.platform.further_machines.observe_k3s", lambda *_, **__: OBSERVED),
        patch("tests.unit.stacks.KUEUE", look),
    ):
        run_with(monitor, "dev", raw_settings("dev", changes))
    (registered,) = asked
    assert {"node-gpu2-k3s", "node-gpu3-k3s"} <= registered


def test_k3s_is_asked_after_its_machines_have_joined() -> None:
    """What the nodes of a k3s offer is read when all further machines have joined it."""
    order = list[str]()

    def comes(name: str) -> Mock:
        return Mock(future=AsyncMock(side_effect=lambda: order.append(name)))

    settings = Mock(host=Mock(gone=False))
    asked = AsyncMock(side_effect=lambda *_: order.append("asked"))
    with patch("infra.platform.queues.see_queues", asked):
        machines = [comes("gpu2"), comes("gpu3")]
        asyncio.run(see_queues_of_k3s(settings, comes("kubeconfig"), machines))
    assert order == ["kubeconfig", "gpu2", "gpu3", "asked"]


@pytest.mark.parametrize(("come", "quota"), [(True, "16"), (False, "8")])
def test_quota_counts_gpus_that_a_new_machine_will_offer(
    tmp_path: Path, come: bool, quota: str
) -> None:
    """While a further machine offers no GPUs yet, the quota is the number in the settings. `up`
    waits until the nodes offer that many before it starts a run.
    """
    offered = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"}
    changes = {**FITTING, "nodes": [TWO], "controllers": ["kueue"], "gpus": 16, **NAMED}
    with (
        patch("infra.platform.further_machines.observe_k3s", lambda *_, **__: OBSERVED),
        patch("tests.unit.stacks.KUEUE", lambda: QueuesSeen("v1beta2", offered, gpus_come=come)),
    ):
        assert amounts(deploy("dev", tmp_path, changes))["nvidia.com/gpu"] == quota


def test_cluster_is_asked_about_the_machines_that_are_not_lost() -> None:
    """Only the further machines that are not lost are expected to offer GPUs."""
    nodes = [
        SimpleNamespace(name=name, host=SimpleNamespace(gone=gone))
        for name, gone in (("gpu2", False), ("gpu3", True))
    ]
    settings = Mock(nodes=nodes, host=Mock(gone=False), queues=Mock(resources=()))
    with patch("infra.platform.queues.read_queues", return_value=QueuesSeen()) as read:
        asyncio.run(see_queues(settings, "kubeconfig"))
    assert list(read.call_args.args[2].machines) == ["gpu2"]


def test_growing_cluster_has_to_be_told_its_quota() -> None:
    """If the cluster grows, the settings have to give the quota of each resource, because it may
    have no nodes at the moment.
    """
    cluster = {"cluster": "existing", "clusterGrows": True, "accelerator": "gpu"}
    said = refusal({**cluster, "queues": {"name": "gpus", "quota": {"cpu": 4}}}, stack="sandbox")
    assert "queues.quota.memory: '' cannot be used: clusterGrows is true" in said
    assert "queues.quota.nvidia.com/gpu: ''" in said
    assert "queues.quota.cpu" not in said


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (TaskError("queues.name: 'gpus' cannot be used: no Kueue"), "cannot be used: no Kueue"),
        (UnreachableError("no route"), "not asked whether Kueue is there: no route"),
    ],
)
def test_cluster_that_cannot_have_a_queue_is_refused(
    tmp_path: Path, reason: Exception, words: str
) -> None:
    """If the cluster cannot have a queue, or cannot be asked, `up` is refused with the reason, and
    nothing is registered (`deploy` checks it).
    """
    with (
        patch("tests.unit.stacks.KUEUE", Mock(side_effect=reason)),
        pytest.raises(pulumi.RunError, match=words),
    ):
        deploy("sandbox", tmp_path, {"queues": GIVEN})


def test_run_may_stand_in_the_queue_that_comes_with_its_platform(tmp_path: Path) -> None:
    """A run may use the queue that the same stack makes. The check before `up` does not miss it,
    and the run looks for it only when it exists.
    """
    settings: dict[str, object] = {
        "queues": GIVEN,
        "queue": "gpus",
        "queuePriority": "urgent",
        "topology": "indexed-job",
        "processesPerPod": 1,
    }
    asked: list[RunPods] = []

    def ask(_: object, __: object, ___: object, pods: RunPods, *____: object) -> Findings:
        asked.append(pods)
        return Findings()

    with patch("tests.unit.stacks.ANSWER", ask):
        made = deploy("sandbox", tmp_path, settings)
    (pods,) = asked
    assert pods.queues_come == ("localqueues/gpus", "workloadpriorityclasses/urgent")
    names = [resource.name for resource in made.resources]
    assert names.index("queues-open-gpus") < names.index("training-queue")


def test_guards_know_the_queue_and_others_are_as_ever(tmp_path: Path) -> None:
    """The guard of `destroy` knows the queue and comes before the queue's objects are deleted. A
    platform without a queue has the same inputs as before there were queues, so that its next `up`
    changes nothing.
    """
    made = deploy("sandbox", tmp_path, {"queues": GIVEN})
    whole = {"queue": "gpus", "cluster_queue": "disttrain-gpus"}
    job = json.loads(made.one("destroy-guard-look").inputs["stdin"])
    assert job["queue"] == whole
    opened = json.loads(made.one("queues-open-gpus").inputs["stdin"])
    assert whole.items() <= opened.items()
    waits_for = set(made.one("queues-open-gpus").request.dependencies)
    ours = {r.urn for r in made.resources if "kueue.x-k8s.io" in r.type}
    assert len(ours) == len(OBJECTS)
    assert ours <= waits_for  # at `destroy` its delete comes before theirs
    without = deploy("sandbox", tmp_path)
    assert "queue" not in json.loads(without.one("destroy-guard-look").inputs["stdin"])
    assert not [r.name for r in without.resources if r.name.startswith("queues")]


def node(allocatable: dict[str, str], *taints: dict[str, str]) -> Json:
    """Return a node with these taints that offers these resources."""
    return {"spec": {"taints": list(taints)}, "status": {"allocatable": allocatable}}


def test_offer_of_the_nodes_is_summed_and_rounded_down() -> None:
    """The offer is the sum over all nodes, rounded down. A cordoned node counts, because it comes
    back; a control plane does not count, because it never takes pods.
    """
    closed = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    cordoned = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    nodes = [
        node({"cpu": "3920m", "memory": "16374496Ki", "nvidia.com/gpu": "8"}),
        node({"cpu": "4", "memory": "16Gi"}, cordoned),
        node({"cpu": "64", "memory": "1Ti", "nvidia.com/gpu": "8"}, closed),
    ]
    wanted = ("cpu", "memory", "nvidia.com/gpu", "example.org/none")
    assert offered_in_all(usable(nodes), wanted) == {
        "cpu": "7920m",
        "memory": "31Gi",
        "nvidia.com/gpu": "8",
    }
    small = [node({"cpu": "1", "memory": "734003200"})]
    assert offered_in_all(small, wanted) == {"cpu": "1", "memory": "700Mi"}


def test_gpus_of_a_machine_come_until_its_node_offers_some() -> None:
    """The GPUs of a further machine come while it has no node, or its node offers none yet. Those
    of a machine that the queue leaves out do not count.
    """

    def named(name: str, gpus: str) -> Json:
        return {**node({"nvidia.com/gpu": gpus}), "metadata": {"name": name}}

    first, second = named("gpu1", "8"), named("gpu2", "8")
    assert gpus_come(["gpu2"], [first], [first])
    assert gpus_come(["gpu2"], [first, named("gpu2", "0")], [first, named("gpu2", "0")])
    assert not gpus_come(["gpu2"], [first, second], [first, second])
    assert not gpus_come(["gpu2"], [first, named("gpu2", "0")], [first])
    assert not gpus_come([], [first], [first])

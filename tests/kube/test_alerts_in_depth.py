"""Faults of a cluster raise an alert at a webhook, and the end of a fault is told there too.

The cluster is real (API server, scheduler, kubelet), and so are Kueue's controller with its
metrics, Prometheus with our rules, and Alertmanager. A stand-in of kube-state-metrics asks the API
server for the pods (state_metrics_stand_in.py). The minutes of the rules are seconds here
(tests/monitoring/hurried.py); nothing else of the rules is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from infra.kube.api_server.api import Api
from infra.monitoring.rules import rule_file
from infra.names import NODE_HEALTH, QUEUE_LABEL
from sandbox.cache import locked
from sandbox.cluster import Cluster
from sandbox.cluster_commands import programs
from sandbox.controllers.controller import running
from sandbox.controllers.kueue import KUEUE, METRICS_PORT
from tests.kube.lab import Json, Lab, Run, wait_for
from tests.kube.python_image import PYTHON_IMAGE, import_image, python_image
from tests.kube.state_metrics_stand_in import StateMetricsStandIn
from tests.kube.watched import Watched
from tests.monitoring.hurried import hurried
from tests.trainer.monitoring.alertmanager import Alertmanager, Webhook
from tests.trainer.monitoring.prometheus import Prometheus
from tests.trainer.monitoring.told import Told
from tests.unit.in_cluster.kernel_lines import CLEAN, LOST

NAME = "alerts-test"
PLATFORM = "disttrain"  # the namespace that alerts about queues name
SAMPLES = 20  # readings, one each second, during which no alert may come
SLEEPS: Json = {
    "image": PYTHON_IMAGE,
    "command": ["python", "-c", "import time; time.sleep(100_000)"],
    "args": [],
}
RACK = "example.com/rack"
READER = "metrics-reader"
KUEUE_API = "kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Yield a cluster of this file's own in which Kueue's controller runs.

    The cluster that the other tests share has Kueue's kinds without its controller (conftest.py).
    """
    with locked(f"{NAME}-cluster"):
        cluster = Cluster(NAME, programs())
        cluster.down(purge=True)
        cluster.up()
        try:
            import_image(cluster, python_image())
            with running(cluster, [KUEUE]):
                yield Lab(cluster)
        finally:
            cluster.down(purge=True)


@pytest.fixture(scope="module")
def token(lab: Lab) -> str:
    """Return the token of an account that may only read `/metrics`, as Prometheus does of Kueue."""
    namespace = lab.namespace()
    rbac = "rbac.authorization.k8s.io"
    account: Json = {"kind": "ServiceAccount", "name": READER, "namespace": namespace}
    role: Json = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": READER},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }
    binding: Json = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": READER},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": READER},
        "subjects": [account],
    }
    lab.kubectl("-n", namespace, "create", "serviceaccount", READER)
    make(lab, role)
    make(lab, binding)
    return lab.kubectl("-n", namespace, "create", "token", READER, "--duration=2h").strip()


@pytest.fixture(scope="module")
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


@pytest.fixture(scope="module")
def prometheus(
    lab: Lab, token: str, webhook: Webhook, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Yield a Prometheus with our rules, which reads the stand-in of kube-state-metrics and Kueue.

    Prometheus, its Alertmanager and the stand-in are closed afterwards.
    """
    folder = tmp_path_factory.mktemp("monitoring")
    stand_in = StateMetricsStandIn(Api(lab.access()))
    alertmanager = Alertmanager(folder / "alertmanager", webhook)
    jobs = jobs_of(stand_in.port, f"{lab.cluster.node_ip}:{METRICS_PORT}", token)
    rules = hurried(rule_file(PLATFORM))
    made = Prometheus(folder / "prometheus", alertmanager.port, rules, jobs)
    try:
        yield made
    finally:
        made.close()
        alertmanager.close()
        stand_in.close()


def jobs_of(state_metrics_port: int, kueue: str, token: str) -> list[Mapping[str, Any]]:
    """Return the jobs of Prometheus, with the labels that its discovery gives to each target."""
    itself = {"namespace": "monitoring", "pod": "kube-state-metrics-0"}
    return [
        {
            "job_name": "kube-state-metrics",
            "honor_labels": True,
            "static_configs": [{"targets": [f"127.0.0.1:{state_metrics_port}"], "labels": itself}],
        },
        {
            "job_name": "kueue",
            "scheme": "https",
            "authorization": {"credentials": token},
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [{"targets": [kueue]}],
        },
    ]


def make(lab: Lab, manifest: Json) -> str:
    """Make an object, and return its path."""
    about = manifest["metadata"]
    place = (manifest["apiVersion"], manifest["kind"], about.get("namespace", ""))
    lab.api.create(lab.api.path(*place), manifest)
    return lab.api.path(*place, about["name"])


def steady(prometheus: Prometheus, expression: str) -> None:
    """Wait until `expression` held in SAMPLES readings, one each second; no alert waits for so
    long.
    """
    enough = f"count_over_time(({expression})[{SAMPLES + 5}s:1s]) >= {SAMPLES}"
    assert prometheus.wait_for(enough, 300), f"it is not so for {SAMPLES} readings: {expression}"


def test_pod_that_no_node_has_a_place_for(
    lab: Lab, prometheus: Prometheus, webhook: Webhook
) -> None:
    """DisttrainPodPending tells of a pod that no node can take, and resolves when the pod has a
    place.

    The alert is silent while the pods of a run are placed. Here the pod of a second run asks for a
    label that no node has at first.
    """
    namespace = lab.namespace()
    healthy, waiting = Run(lab, namespace, "placed"), Run(lab, namespace, "waits")
    (node,) = [item["metadata"]["name"] for item in lab.api.list("/api/v1/nodes")]
    told = Told(prometheus, webhook, {"namespace": namespace})
    told.nothing_of("DisttrainPodPending")
    healthy.make(**SLEEPS)
    phase = f'kube_pod_status_phase{{namespace="{namespace}",phase="Running"}} == 1'
    steady(prometheus, phase)
    told.was_silent("DisttrainPodPending")
    waiting.pod = {"nodeSelector": {RACK: "one"}}
    waiting.make(**SLEEPS)
    (pod,) = wait_for("its pod", waiting.pods)
    told.firing("DisttrainPodPending", pod=pod["metadata"]["name"])
    (condition,) = waiting.pods()[0]["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    try:
        lab.kubectl("label", "node", node, f"{RACK}=one")
        told.resolved("DisttrainPodPending")
    finally:
        lab.kubectl("label", "node", node, f"{RACK}-")


@pytest.fixture
def watched(lab: Lab) -> Iterator[Watched]:
    """Yield a namespace whose pods watch the node. They end afterwards."""
    made = Watched(lab)
    try:
        yield made
    finally:
        made.end()


def test_machine_whose_gpu_is_lost(
    watched: Watched, prometheus: Prometheus, webhook: Webhook
) -> None:
    """DisttrainNodeUnhealthy names the machine whose kernel log says that a GPU fell off the bus.

    The log is a file here. The pod that watches the machine writes the fault into its condition,
    and is no longer ready. A reboot, for which a new pod with an empty log stands in, resolves the
    alert.
    """
    told = Told(prometheus, webhook, {"namespace": watched.namespace})
    watched.start(cordons=False, stand_ins={})
    wait_for("the first words of the watch", watched.told)
    watched.log(*CLEAN)
    wait_for("a machine that is well", lambda: watched.told()["status"] == "True")
    ready = f'kube_pod_status_ready{{namespace="{watched.namespace}",condition="true"}} == 1'
    assert prometheus.wait_for(ready, 300)
    told.nothing_of("DisttrainNodeUnhealthy")
    steady(prometheus, ready)
    told.was_silent("DisttrainNodeUnhealthy")
    watched.log(LOST)
    (pod,) = [item["metadata"]["name"] for item in watched.pods(NODE_HEALTH)]
    told.firing("DisttrainNodeUnhealthy", pod=pod, node=watched.node)
    assert watched.told()["message"].startswith("GPU 0000:3b:00 reported Xid 79")
    watched.lab.kubectl("-n", watched.namespace, "delete", "pod", pod)
    told.resolved("DisttrainNodeUnhealthy")


def queue(lab: Lab, namespace: str, quota: str) -> str:
    """Make a Kueue queue with this much processor for all namespaces; return its ClusterQueue's
    path.
    """
    flavor = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": namespace}}
    local = {
        "apiVersion": KUEUE_API,
        "kind": "LocalQueue",
        "metadata": {"name": "gpus", "namespace": namespace},
        "spec": {"clusterQueue": namespace},
    }
    make(lab, flavor)
    of_all = {
        "apiVersion": KUEUE_API,
        "kind": "ClusterQueue",
        "metadata": {"name": namespace},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups(namespace, quota)},
    }
    path = make(lab, of_all)
    make(lab, local)
    return path


def groups(flavor: str, quota: str) -> list[Json]:
    """Return the resource groups of a ClusterQueue that offers this much processor."""
    offered = {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": quota}]}
    return [{"coveredResources": ["cpu"], "flavors": [offered]}]


def start(lab: Lab, namespace: str, name: str, cpu: str) -> str:
    """Make the Job of a run that stands in the queue, and return its path. Kueue starts the Job."""
    container = {"name": "trainer", "imagePullPolicy": "Never", **SLEEPS}
    container |= {"resources": {"requests": {"cpu": cpu}}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {QUEUE_LABEL: "gpus"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    return make(lab, job)


def is_suspended(lab: Lab, path: str) -> bool:
    job = lab.api.get(path)
    return job is not None and bool(job["spec"].get("suspend"))


def test_queue_that_admits_nothing(lab: Lab, prometheus: Prometheus, webhook: Webhook) -> None:
    """DisttrainQueueStuck tells of a queue that starts nothing, though nothing runs in it.

    A run that asks for more than the queue has, and then a queue that somebody has stopped, each
    raise the alert. A run that waits behind a running one raises none, because that is normal.
    """
    namespace = lab.namespace()
    path = queue(lab, namespace, "100m")
    told = Told(prometheus, webhook, {"cluster_queue": namespace, "namespace": PLATFORM})
    told.nothing_of("DisttrainQueueStuck")
    holder = start(lab, namespace, "train-holder", "50m")
    wait_for("its place", lambda: not is_suspended(lab, holder))
    large = start(lab, namespace, "train-large", "200m")
    of = f'{{cluster_queue="{namespace}"}}'
    waits_behind = (
        f"sum(kueue_pending_workloads{of}) == 1 and sum(kueue_admitted_active_workloads{of}) == 1"
    )
    steady(prometheus, waits_behind)
    told.was_silent("DisttrainQueueStuck")
    lab.kubectl("-n", namespace, "delete", "job", "train-holder")
    told.firing("DisttrainQueueStuck")
    assert is_suspended(lab, large)
    lab.api.patch(path, {"spec": {"resourceGroups": groups(namespace, "300m")}})
    told.resolved("DisttrainQueueStuck")
    wait_for("the place of the large one", lambda: not is_suspended(lab, large))
    told.nothing_of("DisttrainQueueStuck")
    lab.api.patch(path, {"spec": {"stopPolicy": "HoldAndDrain"}})
    told.firing("DisttrainQueueStuck")
    lab.api.patch(path, {"spec": {"stopPolicy": "None"}})
    told.resolved("DisttrainQueueStuck")

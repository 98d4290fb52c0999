"""With `monitoring: install`, `up` installs Prometheus with the platform, and `destroy` removes it.

The operator, Prometheus and Alertmanager are the real programs, in pods. The chart is a stand-in
for the one that users get (prometheus_stack.py). `make test-engines` runs this file.
"""

import json
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infra.controllers.kube_prometheus_stack import CLAIM, KIND
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.objects import is_true
from infra.labels import COMPONENT_LABEL
from infra.monitoring.rules import RULES
from sandbox.stack import PulumiFailedError, Stack
from sandbox.tools.services import ALERTMANAGER_SERVER
from tests.e2e.asking import changes
from tests.e2e.controllers import CHARTS, import_controller, settings_for, traces
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for
from tests.e2e.prometheus_stack import NAME, SETTINGS, import_images, make_chart

pytestmark = pytest.mark.in_order

STACK = "e2e-monitoring"
PROMETHEUS, ALERTMANAGER = "prometheus-operated:9090", "alertmanager-operated:9093"
WEBHOOK, WEBHOOK_PORT = "alert-webhook", 8080
DISK, GIB = "e2e-numbers", 2
WEBHOOK_PROGRAM = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""
# It takes a minute until the kubelet brings a new configuration, which Prometheus then reads.
LONGEST_SECONDS = 300.0


@pytest.fixture(scope="module")
def disk(lab: Lab) -> Iterator[str]:
    """Yield the name of a storage class that has one volume, of the kind `local`.

    The kubelet gives such a volume to the pod's group, as it does with volumes of clouds.
    Prometheus writes to a folder that the kubelet makes in the volume. Therefore it would not be
    enough if only the volume's own folder belonged to the user of Prometheus.
    """
    folder = lab.cluster.data_root.parent / DISK
    folder.mkdir()
    (node,) = lab.get("nodes")["items"]
    place = {
        "key": "kubernetes.io/hostname",
        "operator": "In",
        "values": [node["metadata"]["labels"]["kubernetes.io/hostname"]],
    }
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": DISK},
        "provisioner": "kubernetes.io/no-provisioner",
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": DISK},
        "spec": {
            "capacity": {"storage": f"{GIB}Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": DISK,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
        },
    }
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    api.create("/apis/storage.k8s.io/v1/storageclasses", storage_class)
    api.create("/api/v1/persistentvolumes", volume)
    yield DISK
    lab.kubectl("delete", "persistentvolume", DISK)
    lab.kubectl("delete", "storageclass", DISK)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def settings(disk: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return settings of a platform with Prometheus, a claim for its numbers, and Kueue."""
    chart = make_chart(tmp_path_factory.mktemp("chart"))
    claim = {"monitoringStorageGib": str(GIB), "monitoringStorageClass": disk}
    return {**SETTINGS, **claim, f"{CHARTS}.{NAME}": str(chart), **settings_for("kueue")}


@pytest.fixture(scope="module")
def stack(lab: Lab, before: dict[str, str], settings: dict[str, str]) -> Iterator[Stack]:
    import_images(lab)
    import_controller(lab, "kueue")
    made = lab.stack(STACK, "sandbox", {**run_settings(STACK, ENDLESS), **settings})
    made.set("alertWebhook", f"http://{WEBHOOK}.default.svc:{WEBHOOK_PORT}/", secret=True)
    yield made
    made.destroy()


def asked(lab: Lab, service: str, path: str, **query: str) -> Any:
    """Return what Prometheus or Alertmanager answers; the API server passes on the question."""
    words = f"?{urllib.parse.urlencode(query)}" if query else ""
    return json.loads(lab.kubectl("get", "--raw", f"{base_path(service)}{path}{words}"))


def base_path(service: str) -> str:
    """Return the path by which the API server leads to a Service of the operator."""
    return f"/api/v1/namespaces/{KIND.namespace}/services/{service}/proxy"


def test_prometheus_of_the_platform_reads_its_runs(
    lab: Lab, before: dict[str, str], stack: Stack
) -> None:
    """One `up` on a cluster without Prometheus installs it, and it reads the run's step.

    The preview before that makes nothing.
    """
    stack.preview()
    assert traces(lab) == before
    stack.up()
    for kind in KIND.awaited:
        (item,) = lab.get(kind.lower(), namespace=KIND.namespace)["items"]
        assert item["status"]["availableReplicas"] == 1

    def value() -> float:
        query = f'disttrain_step{{run="{STACK}",namespace="disttrain"}}'
        found = asked(lab, PROMETHEUS, "/api/v1/query", query=query)
        return float(found["data"]["result"][0]["value"][1]) if found["data"]["result"] else 0.0

    wait_for("a reading of the run", value, LONGEST_SECONDS)


def test_prometheus_reads_the_queues_of_the_platforms_kueue(lab: Lab, stack: Stack) -> None:
    """The platform's Prometheus reads the metrics of Kueue's queues.

    Kueue shows them only by HTTPS and to accounts with that right, so Prometheus needs an account
    of its own.
    """
    assert stack
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    queues = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"}
    api.create(queues, {**queue, "metadata": {"name": "e2e-read"}, "spec": {}})

    def value() -> Any:
        query = 'kueue_pending_workloads{cluster_queue="e2e-read"}'
        return asked(lab, PROMETHEUS, "/api/v1/query", query=query)["data"]["result"]

    try:
        wait_for("a reading of the queue", value, LONGEST_SECONDS)
    finally:
        api.delete(f"{queues}/e2e-read", {})


def test_class_that_is_not_there_is_refused_by_the_preview(lab: Lab, stack: Stack) -> None:
    """The preview refuses a `monitoringStorageClass` that the cluster lacks, and names those it
    has.
    """
    stack.set("monitoringStorageClass", "not-there")
    try:
        with pytest.raises(PulumiFailedError) as refused:
            stack.preview()
    finally:
        stack.set("monitoringStorageClass", DISK)
    said = " ".join(str(refused.value).split())
    assert "monitoringStorageClass: 'not-there' cannot be used: the cluster has no such" in said
    assert f"it has {DISK}" in said


def test_numbers_outlive_the_pod_of_prometheus(lab: Lab, stack: Stack) -> None:
    """If the pod of Prometheus is deleted, the next pod has the numbers that were read before."""
    assert stack
    claim = lab.get("pvc", CLAIM, namespace=KIND.namespace)
    assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", DISK)
    pod = CLAIM.partition("-db-")[2]
    uid = lab.get("pod", pod, namespace=KIND.namespace)["metadata"]["uid"]
    query = f'min_over_time(timestamp(disttrain_info{{run="{STACK}"}})[2h:30s])'

    def oldest() -> float:
        found = asked(lab, PROMETHEUS, "/api/v1/query", query=query)["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    before = oldest()
    assert before
    lab.kubectl("delete", "pod", pod, namespace=KIND.namespace)

    def is_another() -> bool:
        items = lab.get("pod", namespace=KIND.namespace)["items"]
        found = [each for each in items if each["metadata"]["name"] == pod]
        return any(is_true(each, "Ready") and each["metadata"]["uid"] != uid for each in found)

    wait_for("another pod of Prometheus", is_another, LONGEST_SECONDS)
    assert 0 < oldest() <= before + 1


def test_alert_rules_lead_to_its_alertmanager(lab: Lab, stack: Stack) -> None:
    """Prometheus has all alert rules, and sends alerts to the Alertmanager that comes with it."""
    assert stack

    def names() -> set[str]:
        groups = asked(lab, PROMETHEUS, "/api/v1/rules")["data"]["groups"]
        return {rule["name"] for group in groups for rule in group["rules"]}

    wanted = {rule.name for rule in RULES}
    wait_for("the alert rules", lambda: wanted <= names(), LONGEST_SECONDS)
    found = asked(lab, PROMETHEUS, "/api/v1/alertmanagers")["data"]
    assert len(found["activeAlertmanagers"]) == 1
    version = asked(lab, ALERTMANAGER, "/api/v2/status")["versionInfo"]["version"]
    assert version == ALERTMANAGER_SERVER.version


@pytest.fixture
def webhook(lab: Lab, stack: Stack) -> Iterator[Callable[[], list[Any]]]:
    """Run a webhook in a pod with a Service; yield a function that returns the alerts sent to it so
    far.
    """
    (pod,) = lab.get("pod", "-l", COMPONENT_LABEL + "=training")["items"]
    image = pod["spec"]["containers"][0]["image"]
    about = {"name": WEBHOOK, "namespace": "default", "labels": {"app": WEBHOOK}}
    command = ["python3", "-u", "-c", WEBHOOK_PROGRAM, str(WEBHOOK_PORT)]
    container = {"name": "main", "image": image, "command": command, "imagePullPolicy": "Never"}
    ports = [{"port": WEBHOOK_PORT}]
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    paths = [f"/api/v1/namespaces/default/{plural}" for plural in ("services", "pods")]
    spec = {"selector": {"app": WEBHOOK}, "ports": ports}
    api.create(paths[0], {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec})
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    api.create(paths[1], {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})

    def told() -> list[Any]:
        lines = lab.kubectl("logs", WEBHOOK, namespace="default").splitlines()
        return [alert for line in filter(None, lines) for alert in json.loads(line)["alerts"]]

    try:
        ready = ("--for=condition=Ready", "--timeout=300s")  # the default is 30 s
        lab.kubectl("wait", *ready, f"pod/{WEBHOOK}", namespace="default")
        yield told
    finally:
        for path in paths:
            api.delete(f"{path}/{WEBHOOK}", {})
        wait_for("the end of the pod", lambda: api.get(f"{paths[1]}/{WEBHOOK}") is None, 60)


def test_webhook_is_told_of_alerts_of_the_runs(lab: Lab, webhook: Callable[[], list[Any]]) -> None:
    """Alerts of the platform's namespace reach the webhook; alerts of other namespaces do not."""

    def is_configured() -> bool:
        status = asked(lab, ALERTMANAGER, "/api/v2/status")
        return "webhook_configs" in status["config"]["original"]

    wait_for("Alertmanager to know the webhook", is_configured, LONGEST_SECONDS)
    given = [
        {"labels": {"alertname": RULES[0].name, "namespace": namespace, "run": STACK}}
        for namespace in ("elsewhere", NAMESPACE)
    ]
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    api.request("POST", f"{base_path(ALERTMANAGER)}/api/v2/alerts", given)
    wait_for("the alert", webhook, LONGEST_SECONDS)
    assert {alert["labels"]["namespace"] for alert in webhook()} == {NAMESPACE}


def test_second_up_changes_nothing_of_it(stack: Stack) -> None:
    """A second `up` and a `refresh` change nothing on a platform that has installed Prometheus."""
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    stack.refresh()
    stack.preview("--expect-no-changes")


def test_another_platform_is_told_to_use_it(
    lab: Lab, stack: Stack, settings: dict[str, str]
) -> None:
    """While one stack's Prometheus operator is in the cluster, another stack's preview refuses
    `install`.

    The message says that `monitoring: existing` uses the one that is there.
    """
    assert stack
    folder = str(lab.cluster.data_root / "second")
    second = {"namespace": "e2e-second", "topology": "none", "dataRoot": folder}
    other = lab.stack("e2e-second-platform", "sandbox", {**settings, **second})
    with pytest.raises(PulumiFailedError) as refused:
        other.preview()
    said = " ".join(str(refused.value).split())
    assert "monitoring: 'install' cannot be used: the Prometheus operator is in the cluster" in said
    assert f"stack {STACK} has installed it" in said
    assert "Set monitoring to existing" in said


def test_own_prometheus_is_not_taken_for_one_of_others(
    lab: Lab, stack: Stack, settings: dict[str, str]
) -> None:
    """`up` refuses `monitoring: existing` if this stack itself has installed the operator.

    Without `install` the operator would be removed, and then nothing would read the runs. Nothing
    is deleted before the refusal.
    """
    there = traces(lab)
    stack.set_all({**dict.fromkeys(settings, None), "monitoring": "existing"})
    try:
        with pytest.raises(PulumiFailedError) as refused:
            stack.up()
    finally:
        stack.set_all(settings)
    said = " ".join(str(refused.value).split())
    assert "this stack has installed the Prometheus operator (monitoring: 'install')" in said, said
    assert traces(lab) == there


def test_destroy_leaves_nothing_of_prometheus(
    lab: Lab, before: dict[str, str], stack: Stack
) -> None:
    """`destroy` leaves no definition, role, namespace or claim of Prometheus.

    The volume stays, because its reclaim policy is `Retain`.
    """
    stack.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)
    claims = lab.get("pvc", "--all-namespaces")["items"]
    assert CLAIM not in [each["metadata"]["name"] for each in claims]
    assert lab.get("pv", DISK)["status"]["phase"] == "Released"

"""Kueue's kinds on a real API server without Kueue's controller; the tests write its conditions."""

import yaml

from infra.kube.queues.kueue import served_version
from infra.names import QUEUE_LABEL
from sandbox.controllers.kueue import KUEUE
from sandbox.toolchain import tool_folder
from tests.kube.lab import Json, Lab, Run, wait_for

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERSION = "v1beta2"
PLURALS = (
    "localqueues",
    "clusterqueues",
    "resourceflavors",
    "workloads",
    "workloadpriorityclasses",
    "topologies",
)


def definition(plural: str) -> Json:
    """Return Kueue's own definition of a kind with only the version `VERSION`.

    An API server with several versions would ask Kueue's controller to convert them, and that does
    not run here.
    """
    folder = tool_folder(KUEUE.tool) / "config" / "components" / "crd" / "bases"
    (item,) = yaml.safe_load_all((folder / f"kueue.x-k8s.io_{plural}.yaml").read_text())
    item["spec"].pop("conversion", None)
    (kept,) = [each for each in item["spec"]["versions"] if each["name"] == VERSION]
    item["spec"]["versions"] = [{**kept, "storage": True, "served": True}]
    return item


def make_kueue_kinds(lab: Lab) -> None:
    """Let the cluster serve Kueue's kinds.

    They are not removed again, because an API server may report for minutes that it serves them.
    """
    for plural in PLURALS:
        lab.api.create(DEFINITIONS, definition(plural))
    wait_for("Kueue's kinds", lambda: _are_served(lab))


def _are_served(lab: Lab) -> bool:
    found = lab.api.get(f"/apis/kueue.x-k8s.io/{VERSION}")
    resources = {item["name"] for item in found["resources"]} if found else set[str]()
    return set(PLURALS) <= resources and served_version(lab.api) == VERSION


def make(lab: Lab, plural: str, item: Json, namespace: str = "") -> str:
    """Make an object of Kueue, and return its path."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    path = f"/apis/kueue.x-k8s.io/{VERSION}{inside}/{plural}"
    lab.api.create(path, {"apiVersion": f"kueue.x-k8s.io/{VERSION}", **item})
    return f"{path}/{item['metadata']['name']}"


def put_into_queue(run: Run, message: str) -> str:
    """Let a run's Job wait in the queue `gpus`, and return the path of its Workload of Kueue."""
    made = run.make()
    held = {"metadata": {"labels": {QUEUE_LABEL: "gpus"}}, "spec": {"suspend": True}}
    run.lab.api.patch(run.path, held)
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "any"}]}
    item = {
        "kind": "Workload",
        "metadata": {
            "name": f"job-{run.name}",
            "labels": {"kueue.x-k8s.io/job-uid": made["metadata"]["uid"]},
        },
        "spec": {
            "queueName": "gpus",
            "active": True,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}],
        },
    }
    path = make(run.lab, "workloads", item, run.namespace)
    say(run.lab, path, "QuotaReserved", "False", message)
    return path


def say(
    lab: Lab, workload: str, type_: str, status: str, message: str, reason: str = "Test"
) -> None:
    """Write one condition of a Workload."""
    condition = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-11-23T00:17:49Z",
    }
    assert lab.api.patch(f"{workload}/status", {"status": {"conditions": [condition]}})

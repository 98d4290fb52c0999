"""Finds out whether a queue of Kueue sends its runs to other clusters (MultiKueue)."""

from typing import cast

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.objects import Json, name_of, part, parts
from infra.kube.queues.kueue import collection

MULTIKUEUE = "kueue.x-k8s.io/multikueue"  # the controller of an AdmissionCheck that does so


def check_other_clusters(
    api: Api, version: str, queue: str, cluster_queue: Json, found: Findings
) -> None:
    """Note a problem if the pods of the queue's runs would be in another cluster.

    This program waits for the pods, reads their logs and keeps the data in the cluster of the
    kubeconfig, so it would wait in vain. If these credentials may not read the queue's admission
    checks, nothing is noted, because most checks belong to other controllers.

    Args:
        api: the cluster.
        version: the version of Kueue's objects.
        queue: the name of the LocalQueue.
        cluster_queue: the object of its ClusterQueue.
        found: the problem is added to it.
    """
    for check in _checks(cluster_queue):
        item = object_at(api, f"{collection(version, 'admissionchecks')}/{check}")
        if not isinstance(item, dict) or part(item, "spec").get("controllerName") != MULTIKUEUE:
            continue
        found.problems.append(
            f"queue: {queue!r} cannot be used: its ClusterQueue {name_of(cluster_queue)} has the "
            f"AdmissionCheck {check} of MultiKueue, so Kueue makes the pods of a run in another "
            "cluster, where pulumi up would wait for them in vain and where the volume is not. "
            "Set a queue without this check, or let the stack use the cluster in which the pods "
            "are to run (kubeconfig, kubeContext), with a queue of that cluster"
        )


def _checks(cluster_queue: Json) -> list[str]:
    """The names of a ClusterQueue's AdmissionChecks. This function is pure.

    v1beta1 has two fields for them, and v1beta2 only `admissionChecksStrategy`.
    """
    spec = part(cluster_queue, "spec")
    rules = parts(part(spec, "admissionChecksStrategy"), "admissionChecks")
    plain = cast(list[str], spec.get("admissionChecks") or [])
    return list(dict.fromkeys([*plain, *(str(rule.get("name")) for rule in rules)]))

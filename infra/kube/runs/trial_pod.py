"""Lets the API server try a pod of a run, without making it (dryRun).

So this program need not repeat the rules for limits of namespaces and for priority classes, nor the
rules that only this cluster has.
"""

from collections.abc import Sequence

from infra.kube.api_server.api import Api
from infra.kube.api_server.dry_run import WebhookError, checked
from infra.kube.api_server.findings import Findings
from infra.kube.errors import FORBIDDEN, ApiError
from infra.kube.objects import Json
from infra.kube.paths import PODS
from infra.kube.runs.given_by_cluster import as_made, given_notes
from infra.kube.runs.quotas_findings import LIMIT_KEYS
from infra.kube.workload import Workload

TRIAL = "disttrain-trial"  # the name of the pod in the dryRun; the pod is never made
NO_UID = "00000000-0000-0000-0000-000000000000"  # the API server demands one of each owner
REFUSALS = (400, FORBIDDEN, 422)
# Words in the API server's refusals, and the setting that the user has to change for each.
WORDS = (
    ("PriorityClass", "priorityClass"),
    ("runAsUser: Invalid", "podUser"),
    ("RuntimeClass", "accelerator"),
    ("PodSecurity", "network"),
    ("memory", "memoryPerRank"),
    ("cpu", "cpuPerRank"),
)

DEMANDS = "must specify"  # how a quota's refusal asks for limits that a pod lacks
EXAMPLES = {"cpuLimitPerRank": "4", "memoryLimitPerRank": "16Gi"}


def try_pod(
    api: Api, namespace: str, pod: Json, workload: Workload | None, found: Findings
) -> Json:
    """Ask the API server whether it would accept such a pod.

    Args:
        api: the cluster.
        namespace: the namespace of the pod.
        pod: the manifest of the pod.
        workload: the workload to which the pod would belong; None: it is not known.
        found: each finding is added to it.

    Returns:
        The spec of the pod, with what the cluster would add to it. If the API server does not
        accept it now, it is the spec of the manifest.
    """
    metadata = {**pod["metadata"], "name": TRIAL, **_owned_by(workload)}
    try:
        made = checked(api, PODS.format(namespace), {**pod, "metadata": metadata})
    except WebhookError as reason:
        found.refused_now.append(f"new pods in namespace {namespace}: {reason}")
    except ApiError as refused:
        words = str(refused)
        # These refusals say nothing about the pod: the namespace is made later, `missing_rights`
        # reports the right, others use up a quota at the moment, or a webhook allows no dryRun.
        known = ("cannot create resource", "exceeded quota", "does not support dry run")
        if refused.status not in REFUSALS or any(each in words for each in known):
            return pod["spec"]
        key = next((f"{key}: " for word, key in WORDS if word in words), "")
        remedy = ""
        if DEMANDS in words:
            keys = [key for name, key in LIMIT_KEYS.items() if name in words]
            key, remedy = f"{', '.join(keys)}: " if keys else "", _remedy(namespace, keys)
        found.problems.append(
            f"{key}the cluster would refuse the training's pods in namespace {namespace}: "
            f"{words}{remedy}"
        )
    else:
        found.notes += given_notes(namespace, pod, made)
        return as_made(pod, made)
    return pod["spec"]


def _owned_by(workload: Workload | None) -> Json:
    """The metadata of a pod that belongs to the run's workload, which need not exist.

    Rules of a cluster may refuse pods without an owner, since nothing would make such a pod again.
    The reference does not say that the owner controls the pod: Kueue looks a controller up, and
    refuses the pod if there is none.
    """
    if workload is None:
        return {}
    owner = {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name}
    return {"ownerReferences": [{**owner, "uid": NO_UID}]}


def _remedy(namespace: str, keys: Sequence[str]) -> str:
    """What to do if a quota demands limits that the pods do not have.

    Args:
        namespace: the namespace that has the quota.
        keys: the settings that give the pods such limits; empty: no setting does.
    """
    ask = (
        f"ask whoever runs the cluster for a LimitRange with defaults in namespace {namespace}, or "
        "for another namespace"
    )
    if not keys:
        return f". No setting gives pods what this quota demands: {ask}"
    return (
        f". Set {' and '.join(keys)}, the most that each rank may use, such as "
        f"{' and '.join(f'`pulumi config set {key} {EXAMPLES[key]}`' for key in keys)}, or {ask}"
    )

"""Lets the API server try a pod of a run, without making it (dryRun).

So this program need not repeat the rules for limits of namespaces and for priority classes, nor the
rules that only this cluster has.
"""

from collections.abc import Iterator, Sequence

from infra.kube.api_server.api import Api
from infra.kube.api_server.dry_run import WebhookError, checked
from infra.kube.api_server.findings import Findings
from infra.kube.errors import FORBIDDEN, ApiError
from infra.kube.objects import Json, part, parts
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

RATIO = "limit to request ratio"  # in the refusal of limits that are too far above the requests
DEMANDS = "must specify"  # how a quota's refusal asks for limits that a pod lacks
EXAMPLES = {"cpuLimitPerRank": "4", "memoryLimitPerRank": "16Gi"}


def try_pod(
    api: Api,
    namespace: str,
    pod: Json,
    workload: Workload | None,
    found: Findings,
    small: Json | None,
) -> Json:
    """Ask the API server whether it would accept such a pod, and then one with fewer resources.

    Args:
        api: the cluster.
        namespace: the namespace of the pod.
        pod: the manifest of the pod.
        workload: the workload to which the pod would belong; None: it is not known.
        found: each finding is added to it.
        small: the resources of the pod that prepares the data set; None: there is no such pod.

    Returns:
        The spec of the pod, with what the cluster would add to it. If the API server does not
        accept it now, it is the spec of the manifest.
    """
    named = {**pod, "metadata": {**pod["metadata"], "name": TRIAL, **_owned_by(workload)}}
    try:
        made = checked(api, PODS.format(namespace), named)
    except WebhookError as reason:
        found.refused_now.append(f"new pods in namespace {namespace}: {reason}")
    except ApiError as refused:
        if not (words := _about_the_pod(refused)):
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
        if small:
            found.problems += _small_problems(api, namespace, named, small)
        return as_made(pod, made)
    return pod["spec"]


def _about_the_pod(refused: ApiError) -> str:
    """The words of a refusal; empty: it says nothing about the pod.

    That is so if the namespace is still to be made, if a right is missing, which `missing_rights`
    reports, if others use up a quota at the moment, or if a webhook allows no dryRun.
    """
    words = str(refused)
    known = ("cannot create resource", "exceeded quota", "does not support dry run")
    if refused.status not in REFUSALS or any(each in words for each in known):
        return ""
    return words


def _small_problems(api: Api, namespace: str, pod: Json, resources: Json) -> Iterator[str]:
    """Why the cluster would refuse the pod with these resources, although it accepts it with more.

    A LimitRange may demand larger requests (min), or limits that are closer to the requests
    (maxLimitRequestRatio).
    """
    (container,) = parts(part(pod, "spec"), "containers")
    spec = {**pod["spec"], "containers": [{**container, "resources": resources}]}
    try:
        checked(api, PODS.format(namespace), {**pod, "spec": spec})
    except WebhookError:  # It has just answered for the larger pod, so it soon answers again.
        return
    except ApiError as refused:
        if words := _about_the_pod(refused):
            asked = ", ".join(f"{text} {name}" for name, text in resources["requests"].items())
            smaller = f"Set a smaller {' or '.join(EXAMPLES)}, or ask" if RATIO in words else "Ask"
            yield (
                "the cluster would refuse the pod that prepares the data set in namespace "
                f"{namespace}, which requests {asked}: {words}. No setting changes these "
                f"requests. {smaller} whoever runs the cluster to allow them "
                f"(kubectl -n {namespace} get limitrange)"
            )


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

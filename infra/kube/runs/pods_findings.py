"""Checks whether a cluster can ever run the pods of a run. It changes nothing.

A request with dryRun asks the API server itself whether it would accept such a pod. So this program
need not repeat the rules for limits of namespaces and for priority classes, nor the rules that only
this cluster has.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from infra.kube.api_server.api import Api
from infra.kube.api_server.dry_run import WebhookError, checked
from infra.kube.api_server.findings import Findings, objects_at
from infra.kube.controllers.served import serves, unserved
from infra.kube.errors import FORBIDDEN, ApiError
from infra.kube.objects import Json, name_of, part
from infra.kube.paths import NODES, PODS
from infra.kube.pods.network_policies import network_findings
from infra.kube.pods.only_here import OnlyHere, only_here_problem
from infra.kube.pods.processors import processors_note, processors_problem
from infra.kube.pods.room import KEYS, PodNeeds, pod_needs, room_problem
from infra.kube.pods.shared_gpus import shared_gpus_note
from infra.kube.quantity import amount
from infra.kube.queues.flavor_tolerations import flavor_tolerations
from infra.kube.queues.queue_findings import queue_findings
from infra.kube.queues.unqueued_findings import unqueued_findings
from infra.kube.queues.volcano import volcano_queue_findings
from infra.kube.runs.attachments_findings import attachments_findings
from infra.kube.runs.given_by_cluster import as_made, given_notes
from infra.kube.runs.pull_secrets_findings import pull_secrets_findings
from infra.kube.runs.refused_now import say_refused_now
from infra.kube.runs.uid_range import uid_range_note
from infra.kube.volumes.limited_volumes import LimitedVolume, limited_volumes
from infra.kube.workload import Workload

QUOTAS = "/api/v1/namespaces/{}/resourcequotas"
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
LIMIT_KEYS = {"limits.cpu": "cpuLimitPerRank", "limits.memory": "memoryLimitPerRank"}
EXAMPLES = {"cpuLimitPerRank": "4", "memoryLimitPerRank": "16Gi"}


@dataclass(frozen=True)
class RunPods:
    """The pods of a run, and what has to be known to check them.

    Args:
        namespace: the namespace of the pods.
        pod: the manifest of one of the pods.
        pods: how many pods there are at one time.
        grows: whether the cluster makes nodes when pods need them. Then the present nodes do not
            show whether there will be room.
        without: the resources that no node offers before this stack is up.
        workload: API version (with group) and kind of the workload, if not every cluster knows this
            kind; None: every cluster does.
        setting: the setting that asks for this kind, with its value, such as `topology: 'jobset'`.
        otherwise: why the setting cannot be used if the cluster does not know the kind.
        queue: the LocalQueue of Kueue in which the run waits; empty: none.
        queue_priority: the WorkloadPriorityClass of the run; empty: none.
        level: the node label that has to be a level of that queue's topology; empty: none.
        volcano_queue: the queue of Volcano in which the run waits; empty: none.
        queues_come: which LocalQueues and WorkloadPriorityClasses the stack itself makes; see
            `queue_findings`.
        groups_come: the API groups of controllers that the stack itself installs, some with the
            version.
        class_name: the storage class of the claim that the stack makes; empty: it makes none.
        has_dataset: whether a Job prepares a data set before the training.
        can_queue: whether a queue of Kueue can hold back the run's kind of workload.
        itself: the run's workload; None: it is not known.
        suspend: the suspend patch of the workload's kind.
        makes_volume: whether the stack makes the volume too. Then a volume that exists already is
            not looked at.
        only_here: things that the pods need and that only the machine of this program has.
        here: the boot id of this machine; empty: it is not known.
        secrets_come: the Secrets with a registry's login that the stack itself makes.
        built_for: the kind of processor for which this `up` would build the pods' image; empty: it
            builds none.
    """

    namespace: str
    pod: Json
    pods: int
    grows: bool
    without: Sequence[str] = ()
    workload: tuple[str, str] | None = None
    setting: str = ""
    otherwise: str = ""
    queue: str = ""
    queue_priority: str = ""
    level: str = ""
    volcano_queue: str = ""
    queues_come: Sequence[str] = ()
    groups_come: Sequence[str] = ()
    class_name: str = ""
    has_dataset: bool = True
    can_queue: bool = True
    itself: Workload | None = None
    suspend: Json = field(default_factory=Json)
    makes_volume: bool = False
    only_here: Sequence[OnlyHere] = ()
    here: str = ""
    secrets_come: Sequence[str] = ()
    built_for: str = ""


def pods_findings(api: Api, run: RunPods, found: Findings | None = None) -> Findings:
    """Check the pods of a run on a cluster. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        run: the run that is checked.
        found: each finding is added to it at once, so that an error does not lose earlier findings.
    """
    found = Findings() if found is None else found
    if run.workload and not serves(api, *run.workload):
        version = run.workload[0]
        if not {version, version.partition("/")[0]} & set(run.groups_come):
            found.problems.append(unserved(api, *run.workload, run.setting, run.otherwise))
    elif run.volcano_queue:
        found.add(volcano_queue_findings(api, run.volcano_queue))
    if run.queue:
        names = (run.queue, run.queue_priority)
        comes = (run.queues_come, run.groups_come)
        found.add(queue_findings(api, run.namespace, *names, *comes, run.level))
    found.add(
        unqueued_findings(
            api,
            run.namespace,
            run.pod,
            run.queue,
            has_dataset=run.has_dataset,
            can_queue=run.can_queue,
        )
    )
    volumes: list[LimitedVolume] = []
    if not run.makes_volume:
        volumes = limited_volumes(api, run.namespace, run.pod["spec"], run.class_name, found)
    spec = _try(api, run, found)
    needs = replace(pod_needs(spec, run.pods, without=run.without), volumes=volumes)
    _check_nodes(api, run, needs, found)
    _check_quotas(api, run, needs, found)
    found.add(attachments_findings(api, run.namespace, run.pod))
    found.add(pull_secrets_findings(api, run.namespace, run.pod, run.secrets_come))
    found.add(network_findings(api, run.namespace, run.pod, run.pods))
    found.notes += filter(None, [uid_range_note(api, run.namespace, run.pod)])
    itself = (run.namespace, run.itself, run.suspend)
    say_refused_now(api, *itself, found, installs=bool(run.groups_come))
    return found


def _check_nodes(api: Api, run: RunPods, needs: PodNeeds, found: Findings) -> None:
    nodes = objects_at(api, NODES)
    if nodes is None:
        found.unseen("whether nodes have room for the training's pods")
        return
    if run.queue:
        added = flavor_tolerations(api, run.namespace, run.queue, found)
        needs = replace(needs, tolerations=[*needs.tolerations, *added])
    if problem := room_problem(nodes, needs):
        if run.grows:
            found.notes.append(f"clusterGrows: new nodes have to come. {problem}")
        else:
            hint = "Where the cluster makes nodes when pods need them, set clusterGrows: true"
            found.problems.append(f"{problem}. {hint}")
    else:
        said = [only_here_problem(nodes, needs, thing, run.here) for thing in run.only_here]
        said.append(processors_problem(nodes, needs, run.built_for))
        found.problems += filter(None, said)
        notes = [processors_note(nodes, needs), shared_gpus_note(nodes, needs)]
        found.notes += filter(None, notes)


def _check_quotas(api: Api, run: RunPods, needs: PodNeeds, found: Findings) -> None:
    """Check that the pods fit into each quota.

    They are compared with all that a quota allows, because what others use now may become free.
    """
    quotas = objects_at(api, QUOTAS.format(run.namespace))
    if quotas is None:
        found.unseen(f"whether the quotas of namespace {run.namespace} suffice")
        return
    for quota in quotas:
        spec = part(quota, "spec")
        if spec.get("scopes") or spec.get("scopeSelector"):
            found.notes.append(
                f"quota {name_of(quota)} of namespace {run.namespace} is only for some pods, and "
                "was not checked"
            )
            continue
        for name, allowed in part(spec, "hard").items():
            problem = _quota_problem(name, str(allowed), needs)
            if problem:
                found.problems.append(
                    f"{problem}: quota {name_of(quota)} of namespace {run.namespace} allows "
                    f"{allowed} {name} in all. Set less, or ask for a larger quota"
                )


def _quota_problem(name: str, allowed: str, needs: PodNeeds) -> str:
    if name in ("pods", "count/pods"):
        # The pod that prepares the data set has ended before these pods come.
        return f"pods: {needs.pods} cannot be used" if needs.pods > amount(allowed) else ""
    is_limit, resource = name.startswith("limits."), re.sub("^(requests|limits)[.]", "", name)
    wanted = (needs.limits if is_limit else needs.requests).get(resource)
    if wanted is None or amount(wanted) * needs.pods <= amount(allowed):
        return ""
    key = LIMIT_KEYS.get(name) or KEYS.get(resource, resource)
    whats = f"a limit of {wanted} {resource}" if is_limit else f"{wanted} {resource}"
    return f"{key}: {needs.pods} pod{'' if needs.pods == 1 else 's'} with {whats} each"


def _try(api: Api, run: RunPods, found: Findings) -> Json:
    """Ask the API server whether it would accept such a pod.

    Returns:
        The spec of the pod, with what the cluster would add to it. If the API server does not
        accept it now, it is the spec of the manifest.
    """
    metadata = {**run.pod["metadata"], "name": TRIAL, **_owned_by(run.itself)}
    try:
        made = checked(api, PODS.format(run.namespace), {**run.pod, "metadata": metadata})
    except WebhookError as reason:
        found.refused_now.append(f"new pods in namespace {run.namespace}: {reason}")
    except ApiError as refused:
        words = str(refused)
        # These refusals say nothing about the pod: the namespace is made later, `missing_rights`
        # reports the right, others use up a quota at the moment, or a webhook allows no dryRun.
        known = ("cannot create resource", "exceeded quota", "does not support dry run")
        if refused.status not in REFUSALS or any(each in words for each in known):
            return run.pod["spec"]
        key = next((f"{key}: " for word, key in WORDS if word in words), "")
        remedy = ""
        if DEMANDS in words:
            keys = [key for name, key in LIMIT_KEYS.items() if name in words]
            key, remedy = f"{', '.join(keys)}: " if keys else "", _remedy(run.namespace, keys)
        found.problems.append(
            f"{key}the cluster would refuse the training's pods in namespace {run.namespace}: "
            f"{words}{remedy}"
        )
    else:
        found.notes += given_notes(run.namespace, run.pod, made)
        return as_made(run.pod, made)
    return run.pod["spec"]


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

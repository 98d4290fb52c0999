"""Checks whether a cluster can ever run the pods of a run. It changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, objects_at
from infra.kube.controllers.served import serves, unserved
from infra.kube.objects import Json
from infra.kube.paths import NODES
from infra.kube.pods.dynamic_gpus import problem_with_dynamic_gpus
from infra.kube.pods.network_policies import network_findings
from infra.kube.pods.only_here import OnlyHere, only_here_problem
from infra.kube.pods.processors import processors_note, processors_problem
from infra.kube.pods.room import PodNeeds, pod_needs, room_problem
from infra.kube.pods.shared_gpus import shared_gpus_note
from infra.kube.queues.flavor_tolerations import flavor_tolerations
from infra.kube.queues.queue_findings import queue_findings
from infra.kube.queues.unqueued_findings import unqueued_findings
from infra.kube.queues.volcano import volcano_queue_findings
from infra.kube.runs.attachments_findings import attachments_findings
from infra.kube.runs.pull_secrets_findings import pull_secrets_findings
from infra.kube.runs.quotas_findings import check_quotas
from infra.kube.runs.refused_now import say_refused_now
from infra.kube.runs.trial_pod import try_pod
from infra.kube.runs.uid_range import uid_range_note
from infra.kube.volumes.limited_volumes import LimitedVolume, limited_volumes
from infra.kube.workload import Workload


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
        dataset_resources: the requests and limits of the pod of that Job; None: it is not tried.
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
    dataset_resources: Json | None = None
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
    small = run.dataset_resources if run.has_dataset else None
    spec = try_pod(api, run.namespace, run.pod, run.itself, found, small)
    needs = replace(pod_needs(spec, run.pods, without=run.without), volumes=volumes)
    _check_nodes(api, run, needs, found)
    check_quotas(api, run.namespace, needs, found)
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
    problem = room_problem(nodes, needs)
    if problem:
        problem = problem_with_dynamic_gpus(api, nodes, needs, problem, found)
    if problem:
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

"""Workload `volcano`: a Job of Volcano, whose scheduler starts either all of its pods or none.

If a pod is lost, Volcano's controller ends all pods and makes them again. The fields are those of
https://volcano.sh/en/docs/vcjob/ in version 1.14. All fields of the Job's one task that Volcano's
webhook would fill in are set here. Otherwise a later update of the Job would remove the webhook's
values, which the webhook refuses.
"""

import re
from dataclasses import dataclass

from infra.objects import NO_AWAIT, Manifest
from infra.registry import OptionError
from infra.settings.reader import LARGEST
from infra.workloads.headless import headless_service
from infra.workloads.job import FATAL_EXIT_CODE, RETRIES_PER_POD
from infra.workloads.kind import WorkloadKind
from infra.workloads.replica import indexed_template
from infra.workloads.run import Run

API_VERSION = "batch.volcano.sh/v1alpha1"
TASK = "node"
INDEX_LABEL = "volcano.sh/task-index"
FIRST_SERVICE = "train-volcano-first"
SCHEDULER = "volcano"
OTHERWISE = (
    f"the cluster serves no Job of {API_VERSION}, so Volcano is not there. Let the "
    "platform's stack install it (controllers: [volcano]), install it yourself "
    "(https://volcano.sh/en/docs/installation/), or take the kind that needs no "
    "controller: pulumi config set topology indexed-job"
)


@dataclass(frozen=True)
class VolcanoOptions:
    """Options in the setting `topologyOptions`.

    Args:
        queue: the queue of Volcano in which the run waits until all of its pods fit.
        restarts: how often all pods are made again; 0 stands for a hundred times the number of
            pods. Volcano also counts `./disttrain resume`, and each turn of the run after another
            run, like a lost or evicted pod.

    Raises:
        OptionError: The text is not a name of a queue, or the number is negative.
    """

    queue: str = "default"
    restarts: int = 0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", self.queue):
            raise OptionError(
                "queue",
                "it is not the name of a queue, and every run of Volcano is in one",
                "Set one that `kubectl get queues.scheduling.volcano.sh` lists",
            )
        if self.restarts < 0:
            raise OptionError(
                "restarts", "it is too small", "Set 0 (a hundred times for each pod) or more"
            )


def render(run: Run) -> list[tuple[str, Manifest]]:
    """A Service that leads to the pod with index 0, and the Job.

    Volcano's plugin `svc` would make a Service too. But it would also make a NetworkPolicy, which
    is the decision of the cluster's administrators, and mount a ConfigMap into each pod.
    """
    options: VolcanoOptions = run.kind_options
    service = headless_service(run, _first(run))
    service["spec"]["selector"] = {**run.selector, INDEX_LABEL: "0"}
    template = indexed_template(run, label=INDEX_LABEL)
    # A container that has ended is not started again in its pod, because all pods start together.
    template = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    # The priorities of the Jobs themselves decide their order in a queue.
    priority = run.placement.priority_class
    # The Job fails when the number of its restarts reaches this number.
    most = min((options.restarts or RETRIES_PER_POD * run.world.pods) + 1, LARGEST)
    job = {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": run.metadata(run.workload_name, NO_AWAIT),
        "spec": {
            "schedulerName": SCHEDULER,
            "queue": options.queue,
            **({"priorityClassName": priority} if priority else {}),
            "minAvailable": run.world.pods,
            "maxRetry": most,
            **run.ttl,
            # Volcano uses the first policy that matches.
            "policies": [
                {"exitCode": FATAL_EXIT_CODE, "action": "TerminateJob"},
                {"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"},
            ],
            "tasks": [
                {
                    "name": TASK,
                    "replicas": run.world.pods,
                    "minAvailable": run.world.pods,
                    "maxRetry": most,
                    "template": template,
                }
            ],
        },
    }
    return [("service", service), ("volcano-job", job)]


def _first(run: Run) -> str:
    return run.object_name(FIRST_SERVICE)


KIND = WorkloadKind(
    name="volcano",
    api_version=API_VERSION,
    kind="Job",
    object_name="train-volcano",
    several_pods=True,
    render=render,
    rendezvous=lambda run: {"PET_MASTER_ADDR": _first(run)},
    # A Job of Volcano has no field that suspends it. Its controller carries out Commands instead;
    # see infra/kube/queues/volcano.py.
    suspend=lambda run: {"command": "AbortJob", "phases": ["Aborting", "Aborted"]},
    resume=lambda run: {"command": "ResumeJob", "phases": ["Aborting", "Aborted"]},
    done=("Completed",),
    failed=("Failed", "Terminated"),
    # Volcano does not allow changes of the spec. The label with the revision, which is among these
    # labels, changes with every change of the spec.
    replace_on=("metadata.labels", "spec"),
    kept_in_previews=("spec",),
    no_ttl_because="",
    otherwise=OTHERWISE,
    queue_of_its_own=lambda run: run.kind_options.queue,
    programs=(
        ("bus.volcano.sh", "commands", ("create", "delete", "get")),
        ("scheduling.volcano.sh", "podgroups", ("get",)),
    ),
    options=VolcanoOptions,
)

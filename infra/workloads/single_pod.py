"""Workload `single-pod`: all ranks in the one pod of a Job."""

from typing import Any

from infra.names import TRAINER_CONTAINER
from infra.objects import Manifest
from infra.workloads.kind import WorkloadKind
from infra.workloads.run import Run

FATAL_EXIT_CODE = 78  # trainer/launch/exit_codes.py: the trainer met something that no retry mends
PREEMPTED_EXIT_CODE = 143  # the trainer was asked to stop, and has saved
BACKOFF_LIMIT = 6


def render(run: Run) -> list[tuple[str, Manifest]]:
    """The provider does not wait for this Job, because a training outlasts any `pulumi up`."""
    template = {**run.template, "spec": {**run.template["spec"], "restartPolicy": "Never"}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": run.metadata(run.workload_name, {"pulumi.com/skipAwait": "true"}),
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            # A new pod starts only when the old one has ended: two would write the same run.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    _on_exit_code(FATAL_EXIT_CODE, "FailJob"),
                    _on_exit_code(PREEMPTED_EXIT_CODE, "Ignore"),
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    },
                ]
            },
            "template": template,
        },
    }
    return [("job", job)]


def _on_exit_code(code: int, action: str) -> dict[str, Any]:
    on_exit = {"containerName": TRAINER_CONTAINER, "operator": "In", "values": [code]}
    return {"action": action, "onExitCodes": on_exit}


KIND = WorkloadKind(
    name="single-pod",
    api_version="batch/v1",
    kind="Job",
    object_name="train-singlepod",
    several_pods=False,
    render=render,
    rendezvous=lambda run: {},
    suspend=lambda run: {"spec": {"suspend": True}},
    resume=lambda run: {"spec": {"suspend": False}},
)

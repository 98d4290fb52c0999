"""What the Jobs of all kinds have in common: which end of a pod is tried again."""

from typing import Any

from infra.objects import NO_AWAIT, Manifest
from infra.workloads.run import Run

FATAL_EXIT_CODE = 78  # trainer/launch/exit_codes.py: the trainer met something that no retry mends
PREEMPTED_EXIT_CODE = 143  # the trainer was asked to stop, and has saved
RETRIES_PER_POD = 100
"""For the controllers. A controller counts all failures of a run, however far the run has come
between them, so a long one would end by a few accidents in some weeks. Which run has failed for
good is decided in trainer/launch/pod_failures.py; this number ends what never comes to start it."""


def job(run: Run, spec: Manifest, pod: Manifest | None = None) -> Manifest:
    """A Job of the run's pods.

    The provider does not wait for it, because a training outlasts any `pulumi up`.

    Args:
        run: the run.
        spec: fields of the Job's spec.
        pod: fields of the pods' spec.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": run.metadata(run.workload_name, NO_AWAIT),
        "spec": job_spec(run, spec, pod),
    }


def job_spec(
    run: Run, spec: Manifest, pod: Manifest | None = None, on_disruption: str = "Ignore"
) -> Manifest:
    """The spec of such a Job.

    Args:
        run: the run.
        spec: fields of the Job's spec.
        pod: fields of the pods' spec.
        on_disruption: what Kubernetes does when a pod was evicted. With `Ignore` it does not count
            against `backoffLimit`, but the Job waits before it makes the next pod all the same: 10
            s at first, and each time twice as long, up to 10 minutes
            (https://github.com/kubernetes/kubernetes/issues/130881).
    """
    template = run.template
    pod_spec = {**template["spec"], "restartPolicy": "Never", **(pod or {})}
    return {
        "backoffLimit": RETRIES_PER_POD,
        # A new pod starts only when the old one has ended: two would write the same run.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                _on_exit_code(run, FATAL_EXIT_CODE, "FailJob"),
                {
                    "action": on_disruption,
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
                _on_exit_code(run, PREEMPTED_EXIT_CODE, "Ignore"),
            ]
        },
        "template": {**template, "spec": pod_spec},
        **spec,
    }


def _on_exit_code(run: Run, code: int, action: str) -> dict[str, Any]:
    on_exit = {"containerName": run.kind.container, "operator": "In", "values": [code]}
    return {"action": action, "onExitCodes": on_exit}

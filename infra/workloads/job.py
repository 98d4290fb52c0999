"""Makes the Job of several kinds of workload, with the rules for pods that have failed."""

from typing import Any

from infra.objects import NO_AWAIT, Manifest
from infra.workloads.run import Run

FATAL_EXIT_CODE = 78  # of trainer/launch/exit_codes.py: an error that a retry cannot repair
PREEMPTED_EXIT_CODE = 143  # the trainer received SIGTERM, and has saved
RETRIES_PER_POD = 100
"""The limit of retries for the controllers, for each pod of the run.

A controller counts all failures of a run, no matter how many steps the run has made between them.
With a low limit, a few accidents within some weeks would end a long run. So
trainer/launch/pod_failures.py decides when a run has failed for good. This high limit is for pods
that never come so far as to start that program.
"""


def job(run: Run, spec: Manifest, pod: Manifest | None = None) -> Manifest:
    """The manifest of a Job with the run's pods.

    The provider does not wait for the Job, because a training takes longer than any `pulumi up`.

    Args:
        run: the run.
        spec: further fields of the Job's spec.
        pod: further fields of the pods' spec.
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
    """The spec of a Job with the run's pods.

    Args:
        run: the run.
        spec: further fields of the Job's spec.
        pod: further fields of the pods' spec.
        on_disruption: the action of the Job's controller when a pod was evicted. With `Ignore`, the
            eviction does not count against `backoffLimit`. But the Job still waits before it makes
            the next pod: 10 s at first, and each time twice as long, up to 10 minutes
            (https://github.com/kubernetes/kubernetes/issues/130881).
    """
    template = run.template
    pod_spec = {**template["spec"], "restartPolicy": "Never", **(pod or {})}
    return {
        "backoffLimit": RETRIES_PER_POD,
        # A new pod starts only when the old one has ended. Otherwise both would write to the folder
        # of the same run.
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

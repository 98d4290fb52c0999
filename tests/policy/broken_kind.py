"""A kind of workload that breaks the rules for pods: its pod is privileged.

The setting `extensions` names this module.
"""

from dataclasses import replace

from infra.workloads import WORKLOADS, single_pod
from infra.workloads.run import Run


def render(run: Run) -> list[tuple[str, dict[str, object]]]:
    """Return the Job of single-pod, whose container may do anything on its node."""
    ((role, job),) = single_pod.render(run)
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["securityContext"] = {"privileged": True}
    return [(role, job)]


WORKLOADS.register(
    replace(single_pod.KIND, name="privileged", object_name="train-privileged", render=render)
)

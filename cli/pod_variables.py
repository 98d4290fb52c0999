"""Reads the environment variables that infra/workloads/pod.py gives to the pods of a run.

This module is pure.
"""

from infra.kube.objects import Json, part, parts

NODES = "PET_NNODES"
"""The variable with the number of pods of the run."""
RANKS = "PET_NPROC_PER_NODE"
"""The variable with the number of ranks in each pod."""


def number_told(pod: Json, variable: str) -> int | None:
    """Return the number in a variable of a pod's containers; None if no container has it."""
    for container in parts(part(pod, "spec"), "containers"):
        for each in parts(container, "env"):
            if each.get("name") == variable and str(each.get("value")).isdecimal():
                return int(each["value"])
    return None

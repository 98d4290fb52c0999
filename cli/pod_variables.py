"""What the pods of a run were told about it, by the variables of infra/workloads/pod.py. Pure."""

from infra.kube.objects import Json, part, parts

NODES = "PET_NNODES"
"""How many pods the run has."""
RANKS = "PET_NPROC_PER_NODE"
"""How many ranks each of them has."""


def number_told(pod: Json, variable: str) -> int | None:
    """The number in a variable of a pod's containers; None where no such variable is there."""
    for container in parts(part(pod, "spec"), "containers"):
        for each in parts(container, "env"):
            if each.get("name") == variable and str(each.get("value")).isdecimal():
                return int(each["value"])
    return None

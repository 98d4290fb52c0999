"""Pods of StatefulSets: their names end with their numbers, and each is started again when it ends.

So the trainer is told to wait at the end of a run, instead of ending.
"""

from collections.abc import Mapping

from infra.objects import NO_AWAIT
from infra.workloads.run import Run

NEVER_ENDS = "its object never ends: the pods stay when the run is finished"
STAYS_VARIABLE = "DISTTRAIN_POD_STAYS"  # trainer/launch/node.py reads it
ANNOTATIONS: Mapping[str, str] = {**NO_AWAIT, "pulumi.com/patchForce": "true"}
"""Of the object that has the replicas. Whoever stops or resumes the run sets their number, and owns
that field then. After `pulumi refresh` the engine sets it again, which the API server refuses
without force. The hand-over has seen before that the object is ours."""


def first_pod(run: Run, service: str) -> dict[str, str]:
    """Variables of the pods.

    Args:
        run: the run, whose workload has a StatefulSet of its name.
        service: name of the headless Service.
    """
    return {"PET_MASTER_ADDR": f"{run.workload_name}-0.{service}", STAYS_VARIABLE: "1"}

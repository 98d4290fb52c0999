"""Parts for workloads whose pods belong to StatefulSets.

The names of such pods end with their numbers. Kubernetes starts each pod again when it ends, so a
variable tells the trainer to wait at the end of a run instead of ending.
"""

from collections.abc import Mapping

from infra.objects import NO_AWAIT
from infra.workloads.run import Run

NEVER_ENDS = "its object never ends: the pods stay when the run is finished"
STAYS_VARIABLE = "DISTTRAIN_POD_STAYS"  # trainer/launch/node.py reads it
ANNOTATIONS: Mapping[str, str] = {**NO_AWAIT, "pulumi.com/patchForce": "true"}
"""Annotations of the object that has the field `replicas`.

A program that stops or resumes the run sets this field, and then owns it. After `pulumi refresh`
the engine sets the field again, which the API server refuses without force. The hand-over has
checked before that the object belongs to this stack.
"""


def first_pod(run: Run, service: str) -> dict[str, str]:
    """The variables that tell the pods the address of node 0, and to wait at the end of the run.

    Args:
        run: the run. Its workload has a StatefulSet of the same name.
        service: the name of the headless Service.
    """
    return {"PET_MASTER_ADDR": f"{run.workload_name}-0.{service}", STAYS_VARIABLE: "1"}

"""Pods of StatefulSets: their names end with their numbers, and each is started again when it ends.

So the trainer is told to wait at the end of a run, instead of ending.
"""

from infra.workloads.run import Run

NEVER_ENDS = "its object never ends: the pods stay when the run is finished"
STAYS_VARIABLE = "DISTTRAIN_POD_STAYS"  # trainer/launch/node.py reads it


def first_pod(run: Run, service: str) -> dict[str, str]:
    """Variables of the pods.

    Args:
        run: the run, whose workload has a StatefulSet of its name.
        service: name of the headless Service.
    """
    return {"PET_MASTER_ADDR": f"{run.workload_name}-0.{service}", STAYS_VARIABLE: "1"}

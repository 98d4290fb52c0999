"""The pod template for Kubeflow's operators and Volcano, whose pods have their index in a label."""

from collections.abc import Mapping
from typing import Any

from infra.objects import Manifest
from infra.workloads.run import Run

INDEX_LABEL = "training.kubeflow.org/replica-index"


def indexed_template(
    run: Run,
    variables: Mapping[str, str] | None = None,
    label: str = INDEX_LABEL,
    **fields: Any,
) -> Manifest:
    """The run's pod template, with the pod's index in the variable JOB_COMPLETION_INDEX.

    The trainer reads its node's rank from this variable, and ends its pod when the run is finished.

    Args:
        run: the run.
        variables: further variables of the container.
        label: the label of the pod that has its index.
        fields: further fields of the container.
    """
    template = run.template
    (container,) = template["spec"]["containers"]
    index = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{label}']"}
    container = {
        **container,
        "env": [
            *container["env"],
            {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": index}},
            *({"name": name, "value": value} for name, value in (variables or {}).items()),
        ],
        **fields,
    }
    return {**template, "spec": {**template["spec"], "containers": [container]}}

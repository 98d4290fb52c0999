"""Pods of Kubeflow's operators and of Volcano: a label tells each of them its index."""

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
    """The run's pod template, whose trainer takes its index from that label.

    The trainer reads its rank from JOB_COMPLETION_INDEX, and ends its pod when the run is finished.

    Args:
        run: the run.
        variables: more of the container's variables.
        label: that label.
        fields: more of the container's fields.
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

"""Functions that find parts of what the program has registered."""

from typing import Any

from tests.unit.stacks import Deployment, Registered


def templates(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the pod templates of all Jobs and StatefulSets."""
    kinds = ("kubernetes:batch/v1:Job", "kubernetes:apps/v1:StatefulSet")
    found = [resource for kind in kinds for resource in deployment.of_type(kind)]
    return [resource.inputs["spec"]["template"] for resource in found]


def pods_of_run(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the specs of all pods of the data set and of the training, whatever the topology."""
    inputs = [
        each.inputs
        for each in deployment.resources
        if each.type.startswith("kubernetes:") and each.name.startswith(("dataset-", "training-"))
    ]
    return [spec for value in inputs for spec in _pods_in(value)]


def _pods_in(value: Any) -> list[dict[str, Any]]:
    """Return the specs of pods that are anywhere in a part of a manifest."""
    if isinstance(value, list):
        return [spec for each in value for spec in _pods_in(each)]
    if not isinstance(value, dict):
        return []
    if "containers" in value:
        return [value]
    return [spec for each in value.values() for spec in _pods_in(each)]


def training_template(deployment: Deployment) -> dict[str, Any]:
    """Return the pod template of the training."""
    (template,) = [
        template
        for template in templates(deployment)
        if template["metadata"]["labels"]["app.kubernetes.io/component"] == "training"
    ]
    return template


def variables(template: dict[str, Any]) -> dict[str, str]:
    """Return the variables of the template's first container; one that comes from elsewhere is
    empty.
    """
    return {e["name"]: e.get("value", "") for e in template["spec"]["containers"][0]["env"]}


def revision(result: Deployment) -> str:
    """Return the revision of the run, which changes when its pods have to be made anew."""
    return training_template(result)["metadata"]["labels"]["disttrain.dev/revision"]


def everything_before(result: Deployment, resource: Registered) -> set[str]:
    """Return the names of all resources on which this one depends, directly or not."""
    by_urn = {r.urn: r for r in result.resources}
    names: set[str] = set()
    todo = list(resource.request.dependencies)
    while todo:
        found = by_urn[todo.pop()]
        if found.name not in names:
            names.add(found.name)
            todo += found.request.dependencies
    return names


def keys(result: Deployment) -> set[tuple[str, str]]:
    """Return the kind and name of every Kubernetes object, and of the Helm release."""
    found: set[tuple[str, str]] = set()
    for resource in result.resources:
        if resource.type.startswith("kubernetes:"):
            name = resource.inputs.get("name") or resource.inputs["metadata"]["name"]
            found.add((resource.type, name))
    return found

"""Finds the pods that train among the objects that a program has registered."""

from pathlib import Path
from typing import Any

from tests.unit.stacks import Deployment, deploy

Json = dict[str, Any]


def training_pods(result: Deployment) -> list[Json]:
    """Return the templates of pods that train (metadata and spec), wherever in the objects."""
    return [found for each in result.resources for found in _templates(each.inputs)]


def one_training_pod(folder: Path, settings: dict[str, object]) -> Json:
    """Return the template of the pods of stack `dev` with these settings."""
    (found,) = training_pods(deploy("dev", folder, settings))
    return found


def _templates(value: object) -> list[Json]:
    if isinstance(value, list):
        return [found for each in value for found in _templates(each)]
    if not isinstance(value, dict):
        return []
    spec = value.get("spec")
    if isinstance(spec, dict) and "terminationGracePeriodSeconds" in spec:
        named = {each.get("name") for each in spec.get("containers", ())}
        if {"trainer", "node", "pytorch"} & named:
            return [value]
    return [found for each in value.values() for found in _templates(each)]

"""The labels of Kubernetes objects, and a hash that tells whether a content has changed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pulumi

from infra.names import COMPONENT_LABEL, OWNER_LABEL, REVISION_LABEL, STACK_LABEL

CONTROLLER_LABEL = "disttrain.dev/controller"  # the controller whose published manifests it is from
WORKLOAD_LABEL = "disttrain.dev/workload"
VOLUME_LABEL = "disttrain.dev/volume"  # on a volume; its claim selects the volume by it


def labels(component: str) -> dict[str, str]:
    """The labels that all of disttrain's objects of one component have, in every stack."""
    return {
        "app.kubernetes.io/name": "disttrain",
        COMPONENT_LABEL: component,
        "app.kubernetes.io/part-of": "disttrain",
        "app.kubernetes.io/managed-by": "pulumi",
    }


def metadata(
    name: str,
    namespace: str | None,
    component: str,
    *,
    stack: str,
    owner: pulumi.Input[str],
    revision: str = "",
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The metadata of one of disttrain's objects.

    Args:
        name: the name of the object.
        namespace: the object's namespace; None for an object without one.
        component: the component to which the object belongs, such as `storage`.
        stack: the name of the stack, for people.
        owner: the identity of the stack's state. Two stacks of the same name have different owners.
        revision: a hash of what the object is made of; empty if the object has no revision.
        annotations: the object's annotations.
    """
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": {
            **labels(component),
            STACK_LABEL: stack,
            OWNER_LABEL: owner,
            **({REVISION_LABEL: revision} if revision else {}),
        },
        **({"annotations": dict(annotations)} if annotations else {}),
    }


def content_hash(content: object, length: int = 10) -> str:
    """The first `length` hex digits of the SHA-256 of a JSON-like value."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]

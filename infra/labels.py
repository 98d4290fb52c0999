"""Labels of Kubernetes objects, and the hash that tells one content from another."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pulumi

STACK_LABEL = "disttrain.dev/stack"
OWNER_LABEL = "disttrain.dev/owner"
REVISION_LABEL = "disttrain.dev/revision"
CONTROLLER_LABEL = "disttrain.dev/controller"  # names whose published manifests an object is of
WORKLOAD_LABEL = "disttrain.dev/workload"
VOLUME_LABEL = "disttrain.dev/volume"  # of a volume, by which its claim selects it
COMPONENT_LABEL = "app.kubernetes.io/component"


def labels(component: str) -> dict[str, str]:
    """What all our objects of one component share, in every stack."""
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
    """The metadata of an object of ours.

    Args:
        name: name of the object.
        namespace: None for an object of the whole cluster.
        component: what the object belongs to, such as `storage`.
        stack: name of the stack, for people.
        owner: identifies the stack's state: two stacks of the same name have different owners.
        revision: hash of what the object is made of; empty: the object has no revision.
        annotations: further annotations.
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
    """Hex digits that change with any part of a JSON-like value."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]

"""Names on Kubernetes objects: labels, annotations, and the hash that identifies a workload."""

import hashlib
import json
from typing import Any

STACK_LABEL = "disttrain.dev/stack"
REVISION_LABEL = "disttrain.dev/revision"
COMPONENT_LABEL = "app.kubernetes.io/component"
FIELD_MANAGER = "disttrain"


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
    stack: str,
    revision: str | None = None,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """An object's metadata.

    Two stacks on one node own the shared objects in turn. With one field manager for both, the
    stack in force also removes what the other had set; patchForce takes fields from kubectl.
    """
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": {
            **labels(component),
            STACK_LABEL: stack,
            **({REVISION_LABEL: revision} if revision else {}),
        },
        "annotations": {
            "pulumi.com/patchForce": "true",
            "pulumi.com/patchFieldManager": FIELD_MANAGER,
            **(annotations or {}),
        },
    }


def content_hash(content: object, length: int = 10) -> str:
    """Hex digits that change with any part of a JSON-like value."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]

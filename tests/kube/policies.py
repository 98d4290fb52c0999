"""Asks the API server whether the rules for pods (admission policies) refuse a pod."""

import uuid
from typing import Any

from infra.kube.errors import ApiError
from tests.kube.lab import Lab

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def refusal(lab: Lab, namespace: str, pod: dict[str, Any]) -> str:
    """Return why the API server refuses this pod; empty if it accepts the pod. Nothing is made."""
    metadata = {**pod["metadata"], "name": f"p-{uuid.uuid4().hex[:8]}"}
    body = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": metadata}
    try:
        lab.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    except ApiError as reason:
        return str(reason)
    return ""

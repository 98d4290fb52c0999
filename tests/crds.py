"""Custom resource definitions (CRDs) for tests, whose objects may have any content."""

from typing import Any


def definition(name: str, kind: str = "") -> dict[str, Any]:
    """Return the manifest of a CRD, cluster-wide, in version v1.

    Args:
        name: `plural.group`.
        kind: the kind of its objects; empty: the plural with a capital, for a test that makes no
            objects.
    """
    plural, _, group = name.partition(".")
    kind = kind or plural.capitalize()
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }

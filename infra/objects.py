"""Registers Kubernetes objects from plain manifests.

The objects have the same resource types as those of pulumi-kubernetes, but its classes are not
imported: the import of the classes of `core/v1` alone takes 0.8 s of processor time in each preview
and each `up`, and a manifest does not need them.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, TypeAlias

import pulumi

Manifest: TypeAlias = dict[str, Any]

# With this annotation the provider does not wait until the object is ready.
NO_AWAIT: Mapping[str, str] = {"pulumi.com/skipAwait": "true"}


class KubernetesResource(pulumi.CustomResource):
    """A resource of the Kubernetes provider. Its fields have the same names as in the API."""

    def field(self, name: str) -> pulumi.Output[Any]:
        """The value of an input, or of an output that an input of the same name declares."""
        value: pulumi.Output[Any] = pulumi.get(self, name)  # pyright: ignore[reportUnknownMemberType]
        return value


def kubernetes_object(
    name: str, manifest: Manifest, opts: pulumi.ResourceOptions
) -> KubernetesResource:
    """Register the object that a manifest describes.

    Args:
        name: name of the resource in the stack.
        manifest: the object with `apiVersion` and `kind`, as in a YAML file for kubectl. The
            content of a Secret becomes a Pulumi secret.
        opts: parent, provider and dependencies.
    """
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    group = "core/v1" if api_version == "v1" else api_version
    fields = dict(manifest)
    if kind == "Secret":
        for key in ("data", "stringData"):
            if key in fields:
                fields[key] = pulumi.Output.secret(fields[key])
        hidden = pulumi.ResourceOptions(additional_secret_outputs=["data", "stringData"])
        opts = pulumi.ResourceOptions.merge(opts, hidden)
    return KubernetesResource(f"kubernetes:{group}:{kind}", name, fields, opts)


def secret_value(text: pulumi.Input[str]) -> pulumi.Output[str]:
    """A text in base64, as the field `data` of a Secret needs it."""
    return pulumi.Output.from_input(text).apply(lambda known: b64encode(known.encode()).decode())


def helm_release(name: str, fields: Manifest, opts: pulumi.ResourceOptions) -> KubernetesResource:
    """Register a release that the provider installs with Helm.

    Args:
        name: name of the resource in the stack.
        fields: inputs of `kubernetes:helm.sh/v3:Release`, with the names in its schema.
        opts: parent, provider and dependencies.
    """
    # pulumi-kubernetes' own class also sends `compat`. `status` declares an output of the provider.
    inputs = {**fields, "compat": "true", "status": None}
    return KubernetesResource("kubernetes:helm.sh/v3:Release", name, inputs, opts)


def uid_of(resource: KubernetesResource) -> pulumi.Output[str]:
    """The object's uid. It is unknown in the preview before the object is created."""
    metadata = resource.field("metadata")
    return pulumi.Output.all(resource.id, metadata).apply(lambda known: _uid(known[1]))


def _uid(metadata: Any) -> str:
    """The uid in an object's metadata; empty in a preview, whose metadata has no uid."""
    return str(dict[str, Any](metadata or {}).get("uid") or "")

"""Reads the platform's namespace: this stack makes it, or it exists and is left as it is."""

from dataclasses import dataclass

from infra.settings.reader import Reader


@dataclass(frozen=True)
class NamespaceSettings:
    """The namespace. If `exists`, it is there before `up`, and is never changed or deleted."""

    name: str
    exists: bool


def read_namespace(reader: Reader) -> NamespaceSettings:
    """Read the namespace. The namespaces of Kubernetes and of the GPU Operator are refused."""
    name = reader.text(
        "namespace",
        pattern=r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        form="a name of 1 to 63 lower-case letters, digits and '-'",
        example="disttrain",
    )
    exists = reader.choice("namespaceExisting", ("refuse", "use")) == "use"
    if name == "gpu-operator" or name.startswith("kube-"):
        reader.problem(
            "namespace",
            name,
            "it is one of the cluster's own, where a training has no place",
            "Set a namespace that nothing else uses, such as disttrain",
        )
    elif name == "default" and not exists:
        reader.problem(
            "namespace",
            name,
            "`pulumi destroy` deletes the namespace with all that is in it",
            "Set a namespace that nothing else uses, such as disttrain",
        )
    return NamespaceSettings(name, exists)

"""The namespace of the platform: made by this stack, or one that exists and is left as it is."""

from dataclasses import dataclass

from infra.settings.reader import Reader


@dataclass(frozen=True)
class NamespaceSettings:
    """The namespace; `exists`: it is there before, is never changed and never deleted."""

    name: str
    exists: bool


def read_namespace(reader: Reader) -> NamespaceSettings:
    """Read the namespace; refuses those of Kubernetes and of the GPU Operator."""
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

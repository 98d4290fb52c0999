"""Notes which platforms want an image in containerd, as labels on the image's name.

The name is a hash of the content, so the platforms of two people on one node may have the same
image. Pods show that an image is needed. But a platform may have no pods at the moment when another
platform is destroyed or gets newer code. So each platform leaves a label with its Kubernetes
namespace on the image.
"""

from collections.abc import Iterable, Mapping

from infra.image.containerd import Containerd
from infra.image.plan import ImagePlan

PREFIX = "disttrain.dev/wanted-in."


def platforms(labels: Mapping[str, str]) -> list[str]:
    """Return the namespaces of the platforms that want the image with these labels, sorted."""
    return sorted(key.removeprefix(PREFIX) for key in labels if key.startswith(PREFIX))


def want(containerd: Containerd, plan: ImagePlan, namespace: str) -> None:
    """Note that the platform wants the planned image, and no other image of the repository.

    Args:
        containerd: the node's containerd, which has the image.
        plan: the image.
        namespace: the platform's Kubernetes namespace.

    Raises:
        ContainerdError: containerd does not answer.
    """
    containerd.set_labels(plan.reference, {f"{PREFIX}{namespace}": "yes"})
    other = (name for name in containerd.images() if name != plan.reference)
    release(containerd, (n for n in other if n.rpartition(":")[0] == plan.repository), namespace)


def release(containerd: Containerd, names: Iterable[str], namespace: str) -> None:
    """Remove the platform's label from these images. Images that do not exist are skipped.

    Raises:
        ContainerdError: containerd does not answer.
    """
    labels = containerd.labels()
    for name in names:
        if namespace in platforms(labels.get(name, {})):
            # containerd removes a label that is set to an empty value.
            containerd.set_labels(name, {f"{PREFIX}{namespace}": ""})

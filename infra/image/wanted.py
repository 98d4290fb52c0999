"""Notes which platforms want an image in containerd, as labels on the image's name.

The name is a hash of the content, so the platforms of two people on one node may have the same
image. Pods show that an image is needed. But a platform may have no pods at the moment when another
platform is destroyed or gets newer code. So each platform leaves a label with its Kubernetes
namespace on the image.

A run of another stack goes on with an older image until the next `up` of that stack. On a spare
node no container shows this. So the platform's label stays on images that pods of the cluster name.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from infra.image.containerd import Containerd
from infra.image.plan import ImagePlan

PREFIX = "disttrain.dev/wanted-in."


def platforms(labels: Mapping[str, str]) -> list[str]:
    """Return the namespaces of the platforms that want the image with these labels, sorted."""
    return sorted(key.removeprefix(PREFIX) for key in labels if key.startswith(PREFIX))


def named_by_no_pod() -> Collection[str]:
    """Name no image: the containers of the platform's only node show what its pods need."""
    return ()


@dataclass(frozen=True)
class Platform:
    """The platform for which an image is brought to a node.

    Args:
        namespace: its Kubernetes namespace; empty: no platform wants the image.
        images_of_pods: returns the names of the images of its pods, on whatever node they are; None
            if they are not known.
    """

    namespace: str = ""
    images_of_pods: Callable[[], Collection[str] | None] = named_by_no_pod


NO_PLATFORM = Platform()


def want(containerd: Containerd, plan: ImagePlan, platform: Platform) -> None:
    """Note that the platform wants the planned image, and no other one that none of its pods names.

    Args:
        containerd: the node's containerd, which has the image.
        plan: the image.
        platform: the platform; without a namespace nothing is done.

    Raises:
        ContainerdError: containerd does not answer.
    """
    if not platform.namespace:
        return
    containerd.set_labels(plan.reference, {f"{PREFIX}{platform.namespace}": "yes"})
    others = {name for name in containerd.images() if name != plan.reference}
    older = {name for name in others if name.rpartition(":")[0] == plan.repository}
    if older and (named := platform.images_of_pods()) is not None:
        release(containerd, sorted(older.difference(named)), platform.namespace)


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

"""Asks a cluster which images its pods name, on whatever node they are.

containerd knows only the containers of its own node. A spare node has none. If a machine is lost, a
pod of a run moves there, and needs the image with which the run was started.
"""

from collections.abc import Iterable

from infra.command_line import Say
from infra.kube.api_server.access import Access
from infra.kube.api_server.read_only import read_only_api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import Json, part, parts
from infra.kube.paths import PODS

VARIABLE = "IMAGE_PODS_KUBECONFIG"  # It holds a token or a key, so it is no argument.
SECONDS = 10.0  # of each step of a connection, and for an answer
ENDED = ("Succeeded", "Failed")
KINDS = ("initContainers", "containers")


def images_of_pods(kubeconfig: str, namespace: str, say: Say) -> frozenset[str] | None:
    """The names of the images of all pods of a namespace that have not ended.

    Args:
        kubeconfig: the text of the kubeconfig.
        namespace: the Kubernetes namespace of a platform.
        say: takes the line that says why the cluster could not be asked.

    Returns:
        The names; None if the cluster gave no answer.
    """
    try:
        with read_only_api(Access(kubeconfig), SECONDS) as api:
            return named_by(api.list(PODS.format(namespace)))
    except (ApiError, UnreachableError, OSError, ValueError) as reason:
        say(f"image: older tags stay, because the cluster did not say what its pods use: {reason}")
        return None


def named_by(pods: Iterable[Json]) -> frozenset[str]:
    """The names of the images of those pods that have not ended. This function is pure."""
    specs = [part(pod, "spec") for pod in pods if part(pod, "status").get("phase") not in ENDED]
    containers = (each for spec in specs for kind in KINDS for each in parts(spec, kind))
    return frozenset(str(each.get("image")) for each in containers)

"""Fetches a run from the volume, by a pod that mounts it, and notices if the volume is lost."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cli.fetch import pod_program
from cli.fetch.order import Order, checked_name, say, summary
from cli.fetch.pod_source import PodSource
from cli.fetch.wanted import NoRunError
from cli.stack_outputs import VolumePlace, volume_place
from cli.volume_pod import volume_pod
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import object_at
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.objects import part
from infra.kube.volumes.keep_claim import CLAIM

TASK = "fetch"
NO_RIGHTS = (401, 403)
# The API server's answer with status 403 has these words if the namespace is being deleted.
IS_ENDING = "being terminated"


class LostError(Exception):
    """The volume, or the run on it, cannot be reached; `reason` is the error that says why."""

    def __init__(self, reason: Exception) -> None:
        """Keep the error that is the reason."""
        super().__init__(str(reason))
        self.reason = reason


def from_volume(order: Order) -> str:
    """Copy the run from the volume, and return the final text for the user.

    Raises:
        LostError: the stack is not up, its kubeconfig is gone, the cluster does not answer, the
            namespace or the claim is gone, no pod starts on the volume, or the run is not on the
            volume.
        ValueError: the folder or the checkpoint cannot be used.
        TaskError: the run or its checkpoint cannot be copied.
        ApiError, UnreachableError: the cluster refuses, or stopped answering meanwhile.
        OSError: this machine cannot write.
    """
    with lost_for(ValueError):
        place = volume_place(order.stack)
    name = checked_name(order.run or place.run_name)
    folder = order.folder(name)
    with folder.alone(), ExitStack() as stack:
        with lost_for(ValueError):  # the kubeconfig is gone with its cluster, or cannot be used
            place.access.content()
        with lost_for(TaskError, UnreachableError, ApiError):
            see_claim(Api(place.access), place)
            pod = stack.enter_context(volume_pod(place, TASK, program()))
        source = PodSource(pod, order.by, say)
        with lost_for(NoRunError):
            brought = order.bring(source, f"{place.runs_path}/{name}", folder, say)
    return summary(brought, name, folder.root)


def see_claim(api: Api, place: VolumePlace) -> None:
    """Check that the claim exists and has its volume. Nothing is checked without rights to see it.

    Raises:
        TaskError: a pod would wait in vain for the claim.
    """
    claim = object_at(api, CLAIM.format(place.namespace, place.claim))
    if claim == "unseen":
        return
    problem = ""
    if claim is None:
        problem = "is not there"
    elif part(claim, "status").get("phase") == "Lost":
        problem = "has lost its volume"
    if problem:
        raise TaskError(
            f"claim {place.claim} of namespace {place.namespace} {problem}, so the runs on the "
            "volume cannot be read. `pulumi up` makes what is missing in the cluster"
        )


@contextmanager
def lost_for(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds into LostError, except for missing rights (status 401 or 403).

    A namespace that is being deleted also gives status 403, and counts as lost.
    """
    try:
        yield
    except kinds as error:
        is_forbidden = isinstance(error, ApiError) and error.status in NO_RIGHTS
        if is_forbidden and IS_ENDING not in str(error):
            raise
        raise LostError(error) from None


def program() -> str:
    """Return the text of the program that runs in the pod."""
    return Path(pod_program.__file__).read_text()

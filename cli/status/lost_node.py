"""Explains the state of a run with a pod on a node that does not answer. This module is pure."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from cli.status.judge import RunStatus
from cli.status.platform_status import PlatformStatus
from cli.status.screen import silence_text
from infra.kube.objects import Json, has_ended, machine_of, name_of

# https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
# States in which a run makes no step. If it has a pod on a silent node, that is the likeliest
# reason.
STANDS_STILL = ("quiet", "recovering", "unknown")


def on_lost_node(run: RunStatus, pods: Sequence[Json], platform: PlatformStatus) -> RunStatus:
    """Return the state of a run; if one of its pods is on a lost node, the text names that node.

    The lines of the other pods are then only consequences, because those pods wait for the lost
    one. If a node has been silent for some seconds, perhaps only its kubelet has failed. So a run
    that still makes steps keeps its state.

    Args:
        run: the state of the run, as its pods and their lines show it.
        pods: its training pods.
        platform: the nodes.
    """
    if run.is_over:
        return run
    if where := _place_on(pods, platform.not_ready):
        told, node = where
        detail = (
            f"{told}, which does not answer; if you are sure that this machine is off, "
            f"`kubectl taint node {node} {OUT_OF_SERVICE}` lets the pod start on another one"
        )
        return replace(run, state="stalled", detail=detail)
    if where := _place_on(pods, platform.silent):
        told, node = where
        words = f"{told}, which {silence_text(platform.silent[node])}"
        if run.state in STANDS_STILL:
            return replace(run, state="stalled", detail=words)
        # A pod may fail or wait for another reason than the silent node, so the detail is kept.
        more = run.detail if run.state != "training" else ""
        return replace(run, detail=f"{words}; {more}" if more else words)
    return run


def _place_on(pods: Sequence[Json], nodes: Collection[str]) -> tuple[str, str] | None:
    """Find the first pod on one of these nodes.

    Returns:
        A text such as `pod NAME is on node NODE`, and the node; None if there is no such pod.
    """
    lost = [
        (name_of(pod), node)
        for pod in pods
        if (node := machine_of(pod)) in nodes and not has_ended(pod)
    ]
    if not lost:
        return None
    pod, node = lost[0]
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return f"pod {pod}{more} is on node {node}", node

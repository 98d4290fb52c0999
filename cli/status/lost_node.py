"""A run with a pod on a node that does not answer: which one, and what brings the run on. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from cli.status.judge import PlatformStatus, RunStatus
from cli.status.screen import silence_text
from infra.kube.objects import Json, name_of, part

# https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
OVER = ("stopped", "suspended", "finished", "failed", "gone")
# States of a run that makes no step, for which a silent node is the likeliest reason.
STANDS_STILL = ("quiet", "recovering", "unknown")


def on_lost_node(run: RunStatus, pods: Sequence[Json], platform: PlatformStatus) -> RunStatus:
    """The run's status, which names a node that took one of its pods along.

    What the other pods say is a consequence: they wait for the lost one. A node that has been
    silent for some seconds may have lost its kubelet alone, and a run that steps is said to.

    Args:
        run: as its pods and their lines show it.
        pods: of its training.
        platform: the nodes.
    """
    if run.state in OVER:
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
        # A pod that fails or waits may do so for a reason of its own.
        more = run.detail if run.state != "training" else ""
        return replace(run, detail=f"{words}; {more}" if more else words)
    return run


def _place_on(pods: Sequence[Json], nodes: Collection[str]) -> tuple[str, str] | None:
    """`pod NAME is on node NODE` and that node, of the first pod on one of them; None: none is."""
    lost = [
        (name_of(pod), node)
        for pod in pods
        if (node := str(part(pod, "spec").get("nodeName") or "")) in nodes
        and part(pod, "status").get("phase") not in ("Succeeded", "Failed")
    ]
    if not lost:
        return None
    pod, node = lost[0]
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return f"pod {pod}{more} is on node {node}", node

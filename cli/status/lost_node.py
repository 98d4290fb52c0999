"""A run with a pod on a node that does not answer: which one, and what brings the run on. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from cli.status.judge import RunStatus
from infra.kube.objects import Json, name_of, part

# https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
OVER = ("stopped", "suspended", "finished", "failed", "gone")


def on_lost_node(run: RunStatus, pods: Sequence[Json], not_ready: Collection[str]) -> RunStatus:
    """The run's status, which names a node that took one of its pods along.

    What the other pods say is a consequence: they wait for the lost one.

    Args:
        run: as its pods and their lines show it.
        pods: of its training.
        not_ready: names of the nodes whose kubelets do not answer.
    """
    lost = [
        (name_of(pod), node)
        for pod in pods
        if (node := str(part(pod, "spec").get("nodeName") or "")) in not_ready
        and part(pod, "status").get("phase") not in ("Succeeded", "Failed")
    ]
    if not lost or run.state in OVER:
        return run
    pod, node = lost[0]
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    detail = (
        f"pod {pod}{more} is on node {node}, which does not answer; where that machine is surely "
        f"off, `kubectl taint node {node} {OUT_OF_SERVICE}` lets the pod start on another one"
    )
    return replace(run, state="stalled", detail=detail)

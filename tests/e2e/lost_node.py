"""Starts a run on several nodes, and ends one of the nodes."""

from cli.status.judge import RunStatus
from cli.status.snapshot import take_snapshot
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from sandbox.namespaces import find_holder
from sandbox.stack import Stack
from tests.e2e.lab import ENDLESS, NAMESPACE, SPARES, Lab, run_settings, wait_for

STEPS = 20
SETTINGS = {"podCidr": "10.244.0.0/16", "storageOptions.shared": "true", "podPolicy": "deny"}


def spread(
    lab: Lab, ranks: int = 1, topology: str = "indexed-job", pods: int = 2
) -> dict[str, str]:
    """Return settings of pods with `ranks` ranks each, of which a node has room for only one."""
    return {
        "topology": topology,
        "pods": str(pods),
        "processesPerPod": str(ranks),
        "cpuPerRank": lab.more_than_half_a_node(ranks),
    }


def places(lab: Lab) -> dict[str, str]:
    """Return the name of the node of each training pod, by the pod's name."""
    pods = lab.get("pods", "-l", "app.kubernetes.io/component=training")["items"]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}


def seen(lab: Lab) -> RunStatus:
    """Return what `./disttrain status` says of the only run in the cluster."""
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    (run,) = take_snapshot(api, NAMESPACE).runs
    return run


def start(
    lab: Lab, stack: Stack, run_name: str, topology: str = "indexed-job", pods: int = 2
) -> None:
    """Start the run, and wait until it has made more than 20 steps."""
    placed = {**spread(lab, topology=topology, pods=pods), "run.checkpoint.interval": "10"}
    stack.set_all({**run_settings(run_name, ENDLESS, **SPARES), **placed})
    stack.up()
    wait_for("a checkpoint", lambda: max(lab.losses(run_name), default=0) > 20, 300)


def after_the_first(lab: Lab) -> tuple[str, str]:
    """Return the names of a training pod that is not on the first node, and of its node."""
    first = f"sandbox-{lab.cluster.name}"
    return next((pod, node) for pod, node in places(lab).items() if node != first)


def lose_a_node(lab: Lab) -> tuple[str, str]:
    """End a node other than the first one; return the names of its training pod and of the node."""
    pod, node = after_the_first(lab)
    end_node(lab, node)
    return pod, node


def end_node(lab: Lab, node: str) -> None:
    """End a node other than the first one, as if its machine was switched off."""
    number = node.removeprefix(f"sandbox-{lab.cluster.name}-")
    holder = find_holder(lab.cluster.layout.node(int(number)))
    assert holder is not None
    holder.end()

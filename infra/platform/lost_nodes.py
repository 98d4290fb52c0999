"""The pod of the setting `lostNodes`, which gives up our pods on machines that do not answer.

infra/in_cluster/lost_nodes.py, the program that the pod runs, says what it does and why.
"""

import pulumi

from infra.names import GPU_TOLERATION
from infra.names import LOST_NODES as COMPONENT
from infra.objects import Manifest
from infra.platform.in_cluster import InCluster, Program, ProgramArgs, rule

PROGRAM = Program("lost_nodes", ("api", "lasting"))
LOST_NODES = InCluster(COMPONENT, PROGRAM)
# The pod itself may be on the machine that is lost. It is evicted from there after this time.
LEAVE_AFTER_SECONDS = 5


class LostNodes(pulumi.ComponentResource):
    """A Deployment of one pod, its program, and its rights.

    The pod may read nodes, and may end pods in its namespace.
    """

    def __init__(
        self, name: str, args: ProgramArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:LostNodes", name, {}, opts)
        LOST_NODES.make(self, name, args, rights(args), ("deployment", deployment(args)), opts)
        self.register_outputs({})


def rights(args: ProgramArgs) -> list[tuple[str, Manifest]]:
    """The account and its rights: the role in the stack and the manifest of each object."""
    end_pods = [rule("pods", "list", "delete"), rule("pods/status", "patch")]
    return LOST_NODES.account(args).rights(end_pods, [rule("nodes", "get")])


def deployment(args: ProgramArgs) -> Manifest:
    """The Deployment. The strategy `Recreate` keeps a second pod from running beside the first."""
    leave_soon = [
        {
            "key": f"node.kubernetes.io/{taint}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": LEAVE_AFTER_SECONDS,
        }
        for taint in ("unreachable", "not-ready")
    ]
    pod = {
        **LOST_NODES.pod(args),
        "tolerations": [GPU_TOLERATION, *leave_soon],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": args.demands.user,
            "runAsGroup": args.demands.user,
            # The file with the token belongs to root and to this group, so the pod can read it.
            "fsGroup": args.demands.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [LOST_NODES.container(args)],
        "volumes": LOST_NODES.volumes(),
    }
    spec = {"replicas": 1, "strategy": {"type": "Recreate"}}
    return LOST_NODES.workload("Deployment", args, spec, pod)

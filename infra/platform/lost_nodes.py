"""A pod that gives up our pods on machines that do not answer (setting `lostNodes`).

What it does and why is said in infra/in_cluster/lost_nodes.py, the program that it runs.
"""

import pulumi

from infra.names import GPU_TOLERATION
from infra.names import LOST_NODES as COMPONENT
from infra.objects import Manifest
from infra.platform.in_cluster import InCluster, Program, ProgramArgs, rule
from infra.workloads.pod import TRAINER_UID

PROGRAM = Program("lost_nodes", ("api", "lasting"))
LOST_NODES = InCluster(COMPONENT, PROGRAM)
# The pod itself may be on the machine that is lost.
LEAVE_AFTER_SECONDS = 5


class LostNodes(pulumi.ComponentResource):
    """A Deployment of one pod, its program, and the rights that it has: to read nodes, and to end
    pods in its namespace."""

    program_hash: pulumi.Output[str]

    def __init__(
        self, name: str, args: ProgramArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:LostNodes", name, {}, opts)
        LOST_NODES.make(self, name, args, rights(args), ("deployment", deployment(args)), opts)
        self.program_hash = pulumi.Output.from_input(PROGRAM.hash)
        self.register_outputs({"programHash": self.program_hash})


def rights(args: ProgramArgs) -> list[tuple[str, Manifest]]:
    """Role in the stack and manifest of the account and of what it may do."""
    end_pods = [rule("pods", "list", "delete"), rule("pods/status", "patch")]
    return LOST_NODES.account(args).rights(end_pods, [rule("nodes", "get")])


def deployment(args: ProgramArgs) -> Manifest:
    """One pod, never two."""
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
            "runAsUser": TRAINER_UID,
            "runAsGroup": TRAINER_UID,
            # The token's file belongs to root and to this group.
            "fsGroup": TRAINER_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [LOST_NODES.container(args)],
        "volumes": LOST_NODES.volumes(),
    }
    spec = {"replicas": 1, "strategy": {"type": "Recreate"}}
    return LOST_NODES.workload("Deployment", args, spec, pod)

"""A pod that gives up our pods on machines that do not answer (setting `lostNodes`).

What it does and why is said in infra/in_cluster/lost_nodes.py, the program that it runs.
"""

from dataclasses import dataclass
from typing import Any

import pulumi

from infra.deliveries.kind import Pull
from infra.dependencies import dependencies
from infra.labels import metadata
from infra.names import GPU_TOLERATION
from infra.objects import Manifest, kubernetes_object
from infra.platform.in_cluster import FOLDER, MOUNTS, Account, Program, rule
from infra.workloads.pod import TRAINER_UID

NAME = "disttrain-lost-nodes"
COMPONENT = "lost-nodes"
PROGRAM = Program("lost_nodes", ("api", "lasting"))
# The pod itself may be on the machine that is lost.
LEAVE_AFTER_SECONDS = 5
REQUESTS = {"cpu": "10m", "memory": "64Mi"}


@dataclass(frozen=True)
class LostNodesArgs:
    """Where the pod runs, from which image, and whose platform it is."""

    namespace: str
    image: str
    pull: Pull
    stack: str
    owner: pulumi.Output[str]


class LostNodes(pulumi.ComponentResource):
    """A Deployment of one pod, its program, and the rights that it has: to read nodes, and to end
    pods in its namespace."""

    program_hash: pulumi.Output[str]

    def __init__(
        self, name: str, args: LostNodesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:LostNodes", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts))
        files = PROGRAM.config_map(_about(args, NAME, args.namespace))
        made = [
            kubernetes_object(f"{name}-{role}", manifest, child)
            for role, manifest in [*rights(args), ("program", files)]
        ]
        after = pulumi.ResourceOptions(parent=self, depends_on=made)
        kubernetes_object(f"{name}-deployment", deployment(args), after)
        self.program_hash = pulumi.Output.from_input(PROGRAM.hash)
        self.register_outputs({"programHash": self.program_hash})


def _about(args: LostNodesArgs, name: str, namespace: str | None) -> Manifest:
    return metadata(name, namespace, COMPONENT, stack=args.stack, owner=args.owner)


def rights(args: LostNodesArgs) -> list[tuple[str, Manifest]]:
    """Role in the stack and manifest of the account and of what it may do."""
    of_cluster = _about(args, f"{args.namespace}-lost-nodes", None)
    account = Account(_about(args, NAME, args.namespace), of_cluster)
    end_pods = [rule("pods", "list", "delete"), rule("pods/status", "patch")]
    return account.rights(end_pods, [rule("nodes", "get")])


def deployment(args: LostNodesArgs) -> Manifest:
    """One pod, anew when the program changes."""
    about = _about(args, NAME, args.namespace)
    # `up` does not wait for it, since it may have to be pulled, and a training can begin without.
    annotations = {"pulumi.com/skipAwait": "true"}
    selector = {"app.kubernetes.io/name": "disttrain", "app.kubernetes.io/component": COMPONENT}
    of_pod = {
        "labels": about["labels"],
        "annotations": {"disttrain.dev/program": PROGRAM.hash},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**about, "annotations": annotations},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": {"metadata": of_pod, "spec": _pod_spec(args)},
        },
    }


def _pod_spec(args: LostNodesArgs) -> dict[str, Any]:
    leave_soon = [
        {
            "key": f"node.kubernetes.io/{taint}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": LEAVE_AFTER_SECONDS,
        }
        for taint in ("unreachable", "not-ready")
    ]
    secrets = [{"name": name} for name in args.pull.secrets]
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [GPU_TOLERATION, *leave_soon],
        **({"imagePullSecrets": secrets} if secrets else {}),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": TRAINER_UID,
            "runAsGroup": TRAINER_UID,
            # The token's file belongs to root and to this group.
            "fsGroup": TRAINER_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": COMPONENT,
                "image": args.image,
                "imagePullPolicy": args.pull.policy,
                "command": PROGRAM.command,
                "workingDir": FOLDER,
                "resources": {"requests": dict(REQUESTS)},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [dict(mount) for mount in MOUNTS],
            }
        ],
        "volumes": PROGRAM.volumes(NAME),
    }

"""A pod that gives up our pods on machines that do not answer (setting `lostNodes`).

What it does and why is said in infra/in_cluster/lost_nodes.py, the program that it runs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

from infra.deliveries.kind import Pull
from infra.dependencies import dependencies
from infra.labels import content_hash, metadata
from infra.names import GPU_TOLERATION
from infra.objects import Manifest, kubernetes_object
from infra.workloads.pod import TRAINER_UID

NAME = "disttrain-lost-nodes"
COMPONENT = "lost-nodes"
PROGRAM = Path(__file__).parents[1] / "in_cluster" / "lost_nodes.py"
FOLDER = "/program"
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3600  # the kubelet renews it before it ends
# The pod itself may be on the machine that is lost.
LEAVE_AFTER_SECONDS = 5
RBAC = "rbac.authorization.k8s.io"
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
        text = PROGRAM.read_text()
        made = [
            kubernetes_object(f"{name}-{role}", manifest, child)
            for role, manifest in [*rights(args), ("program", program(args, text))]
        ]
        after = pulumi.ResourceOptions(parent=self, depends_on=made)
        kubernetes_object(f"{name}-deployment", deployment(args, content_hash(text)), after)
        self.program_hash = pulumi.Output.from_input(content_hash(text))
        self.register_outputs({"programHash": self.program_hash})


def _about(args: LostNodesArgs, name: str, namespace: str | None) -> Manifest:
    return metadata(name, namespace, COMPONENT, stack=args.stack, owner=args.owner)


def rights(args: LostNodesArgs) -> list[tuple[str, Manifest]]:
    """Role in the stack and manifest of the account and of what it may do."""
    of_cluster = _about(args, f"{args.namespace}-lost-nodes", None)
    inside = _about(args, NAME, args.namespace)
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": args.namespace}

    def role(kind: str, about: Manifest, rules: list[Manifest]) -> Manifest:
        return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": about, "rules": rules}

    def binding(kind: str, about: Manifest) -> Manifest:
        return {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": about,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": about["name"]},
            "subjects": [account],
        }

    def rule(resource: str, *verbs: str) -> Manifest:
        return {"apiGroups": [""], "resources": [resource], "verbs": [*verbs]}

    end_pods = [rule("pods", "list", "delete"), rule("pods/status", "patch")]
    return [
        ("account", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": inside}),
        ("cluster-role", role("ClusterRole", of_cluster, [rule("nodes", "get")])),
        ("cluster-role-binding", binding("ClusterRole", of_cluster)),
        ("role", role("Role", inside, end_pods)),
        ("role-binding", binding("Role", inside)),
    ]


def program(args: LostNodesArgs, text: str) -> Manifest:
    """The program's file."""
    data = {PROGRAM.name: text}
    about = _about(args, NAME, args.namespace)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}


def deployment(args: LostNodesArgs, program_hash: str) -> Manifest:
    """One pod, anew when the program changes."""
    about = _about(args, NAME, args.namespace)
    # `up` does not wait for it, since it may have to be pulled, and a training can begin without.
    annotations = {"pulumi.com/skipAwait": "true"}
    selector = {"app.kubernetes.io/name": "disttrain", "app.kubernetes.io/component": COMPONENT}
    of_pod = {
        "labels": about["labels"],
        "annotations": {"disttrain.dev/program": program_hash},
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
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}}
    authority = {
        "configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    }
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    place = {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}}
    secrets = [{"name": name} for name in args.pull.secrets]
    return {
        "serviceAccountName": NAME,
        # Its token is mounted by hand: whoever reads the pod sees that it has one.
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
                "command": ["python", f"{FOLDER}/{PROGRAM.name}"],
                "resources": {"requests": dict(REQUESTS)},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "program", "mountPath": FOLDER, "readOnly": True},
                    {"name": "account", "mountPath": TOKEN_FOLDER, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "program", "configMap": {"name": NAME}},
            {"name": "account", "projected": {"sources": [token, authority, place]}},
        ],
    }

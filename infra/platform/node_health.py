"""A pod on each node that watches its machine (setting `nodeHealth`).

What it does and why is said in infra/in_cluster/node_health.py, the program that it runs.
"""

from dataclasses import dataclass
from typing import Any

import pulumi

from infra.deliveries.kind import Pull
from infra.dependencies import dependencies
from infra.in_cluster.node_health import CONDITION
from infra.labels import metadata
from infra.names import KERNEL_LOG_ANNOTATION, NODE_HEALTH
from infra.objects import Manifest, kubernetes_object
from infra.platform.in_cluster import FOLDER, MOUNTS, Account, Program, rule
from infra.platform.object_rules import CORDONS_ANNOTATION

NAME = "disttrain-node-health"
PROGRAM = Program(
    "node_health",
    ("api", "health_cordon", "health_findings", "health_sources", "lasting", "xids"),
)
SCRATCH = "/scratch"
REQUESTS = {"cpu": "10m", "memory": "64Mi"}
GPU_NODE = {"nvidia.com/gpu.present": "true"}  # NVIDIA's operator labels nodes so
# The operator's toolkit gives nvidia-smi and the driver's library to a container that asks so, and
# holds no GPU for it. Its exporter of metrics does the same.
GPU_ENVIRONMENT = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}


@dataclass(frozen=True)
class NodeHealthArgs:
    """Where the pods run, from which image, and whose platform it is.

    Args:
        cordons: whether they also cordon, and not only tell.
        runtime_class: of pods that see GPUs; empty: the default one.
        has_operator: whether NVIDIA's operator labels the nodes with GPUs.
    """

    namespace: str
    image: str
    pull: Pull
    stack: str
    owner: pulumi.Output[str]
    cordons: bool
    runtime_class: str
    has_operator: bool


class NodeHealth(pulumi.ComponentResource):
    """A DaemonSet, its program, and its rights: to tell what is wrong and, where it cordons, to
    change nodes and to evict pods of its namespace."""

    program_hash: pulumi.Output[str]

    def __init__(
        self, name: str, args: NodeHealthArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:NodeHealth", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts))
        files = PROGRAM.config_map(_about(args, NAME, args.namespace))
        made = [
            kubernetes_object(f"{name}-{role}", manifest, child)
            for role, manifest in [*rights(args), ("program", files)]
        ]
        after = pulumi.ResourceOptions(parent=self, depends_on=made)
        kubernetes_object(f"{name}-daemon-set", daemon_set(args), after)
        self.program_hash = pulumi.Output.from_input(PROGRAM.hash)
        self.register_outputs({"programHash": self.program_hash})


def _about(args: NodeHealthArgs, name: str, namespace: str | None) -> Manifest:
    return metadata(name, namespace, NODE_HEALTH, stack=args.stack, owner=args.owner)


def rights(args: NodeHealthArgs) -> list[tuple[str, Manifest]]:
    """Role in the stack and manifest of the account and of what it may do."""
    of_cluster = _about(args, f"{args.namespace}-node-health", None)
    of_cluster["annotations"] = {CORDONS_ANNOTATION: "nodes that are unusable"}
    account = Account(_about(args, NAME, args.namespace), of_cluster)
    tell = [rule("pods/status", "patch")]
    if not args.cordons:
        return account.rights(tell, [])
    ask = [rule("pods", "list"), rule("pods/eviction", "create")]
    return account.rights([*tell, *ask], [rule("nodes", "get", "patch")])


def daemon_set(args: NodeHealthArgs) -> Manifest:
    """A pod on each node, anew when the program changes."""
    about = _about(args, NAME, args.namespace)
    # `up` does not wait for it: a namespace may refuse such pods, and a training does without.
    annotations = {"pulumi.com/skipAwait": "true"}
    selector = {"app.kubernetes.io/name": "disttrain", "app.kubernetes.io/component": NODE_HEALTH}
    of_pod = {
        "labels": about["labels"],
        "annotations": {
            "disttrain.dev/program": PROGRAM.hash,
            KERNEL_LOG_ANNOTATION: "errors of GPUs and disks are told there",
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {**about, "annotations": annotations},
        "spec": {
            "selector": {"matchLabels": selector},
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "100%"},
            },
            "template": {"metadata": of_pod, "spec": _pod_spec(args)},
        },
    }


def _pod_spec(args: NodeHealthArgs) -> dict[str, Any]:
    secrets = [{"name": name} for name in args.pull.secrets]
    variables = [
        *({"name": name, "value": value} for name, value in GPU_ENVIRONMENT.items()),
        _field("NODE_NAME", "spec.nodeName"),
        _field("POD_NAME", "metadata.name"),
    ]
    cordon = ["--cordon"] if args.cordons else []
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        # The pod is Ready while nothing is wrong: kubectl and monitoring show that by themselves.
        "readinessGates": [{"conditionType": CONDITION}],
        "tolerations": [{"operator": "Exists"}],  # it stays where nothing else may
        **({"nodeSelector": dict(GPU_NODE)} if args.has_operator else {}),
        **({"runtimeClassName": args.runtime_class} if args.runtime_class else {}),
        **({"imagePullSecrets": secrets} if secrets else {}),
        "securityContext": {
            # The capability SYSLOG has an effect for root alone.
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": NODE_HEALTH,
                "image": args.image,
                "imagePullPolicy": args.pull.policy,
                "command": [*PROGRAM.command, "--scratch", SCRATCH, *cordon],
                "workingDir": FOLDER,
                "env": variables,
                "resources": {"requests": dict(REQUESTS)},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"], "add": ["SYSLOG"]},
                },
                "volumeMounts": [
                    *(dict(mount) for mount in MOUNTS),
                    {"name": "scratch", "mountPath": SCRATCH},
                ],
            }
        ],
        "volumes": [
            *PROGRAM.volumes(NAME),
            {"name": "scratch", "emptyDir": {"sizeLimit": "16Mi"}},
        ],
    }


def _field(name: str, path: str) -> Manifest:
    # With its default written out, as the API server would add it.
    field = {"apiVersion": "v1", "fieldPath": path}
    return {"name": name, "valueFrom": {"fieldRef": field}}

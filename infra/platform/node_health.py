"""The pods of the setting `nodeHealth`, one on each node, which watch their machines.

infra/in_cluster/node_health.py, the program that they run, says what they do and why.
"""

from dataclasses import dataclass

import pulumi

from infra.in_cluster.node_health import CONDITION
from infra.names import KERNEL_LOG_ANNOTATION, NODE_HEALTH
from infra.objects import Manifest
from infra.platform.in_cluster import InCluster, Program, ProgramArgs, rule
from infra.platform.object_rules import CORDONS_ANNOTATION

PROGRAM = Program(
    "node_health",
    ("api", "health_cordon", "health_findings", "health_sources", "lasting", "xids"),
)
HEALTH = InCluster(NODE_HEALTH, PROGRAM)
SCRATCH = "/scratch"
GPU_NODE = {"nvidia.com/gpu.present": "true"}  # NVIDIA's operator sets this label.
# With these variables the operator's toolkit gives nvidia-smi and the driver's library to the
# container, and reserves no GPU for it. The operator's exporter of metrics uses the same variables.
GPU_ENVIRONMENT = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}


@dataclass(frozen=True)
class NodeHealthArgs(ProgramArgs):
    """Where the pods run, and what they do.

    Args:
        cordons: whether the pods also cordon their node, and do not only report.
        runtime_class: RuntimeClass of pods that see GPUs; empty: the default one.
        has_operator: whether NVIDIA's operator labels the nodes with GPUs.
    """

    cordons: bool
    runtime_class: str
    has_operator: bool


class NodeHealth(pulumi.ComponentResource):
    """A DaemonSet, its program, and its rights.

    Its pods may report what is wrong. If they cordon, they may also change nodes, and evict pods of
    their namespace.
    """

    def __init__(
        self, name: str, args: NodeHealthArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:NodeHealth", name, {}, opts)
        HEALTH.make(self, name, args, rights(args), ("daemon-set", daemon_set(args)), opts)
        self.register_outputs({})


def rights(args: NodeHealthArgs) -> list[tuple[str, Manifest]]:
    """The account and its rights: the role in the stack and the manifest of each object."""
    account = HEALTH.account(args, {CORDONS_ANNOTATION: "nodes that are unusable"})
    tell = [rule("pods/status", "patch")]
    if not args.cordons:
        return account.rights(tell, [])
    ask = [rule("pods", "list"), rule("pods/eviction", "create")]
    return account.rights([*tell, *ask], [rule("nodes", "get", "patch")])


def daemon_set(args: NodeHealthArgs) -> Manifest:
    """The DaemonSet: a pod on each node or, with NVIDIA's operator, on each node with GPUs."""
    cordon = ["--cordon"] if args.cordons else []
    container = HEALTH.container(args, capabilities=["SYSLOG"])
    container["command"] = [*container["command"], "--scratch", SCRATCH, *cordon]
    container["env"] = [
        *({"name": name, "value": value} for name, value in GPU_ENVIRONMENT.items()),
        _field("NODE_NAME", "spec.nodeName"),
        _field("POD_NAME", "metadata.name"),
    ]
    container["volumeMounts"].append({"name": "scratch", "mountPath": SCRATCH})
    pod = {
        **HEALTH.pod(args),
        # The pod is Ready as long as nothing is wrong, which kubectl and monitoring show anyway.
        "readinessGates": [{"conditionType": CONDITION}],
        "tolerations": [{"operator": "Exists"}],  # It also runs on nodes that other pods avoid.
        **({"nodeSelector": dict(GPU_NODE)} if args.has_operator else {}),
        **({"runtimeClassName": args.runtime_class} if args.runtime_class else {}),
        "securityContext": {
            # The capability SYSLOG only has an effect for root, so `podUser` does not hold here.
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            *HEALTH.volumes(),
            {"name": "scratch", "emptyDir": {"sizeLimit": "16Mi"}},
        ],
    }
    spec = {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
    }
    annotations = {KERNEL_LOG_ANNOTATION: "errors of GPUs and disks are told there"}
    return HEALTH.workload("DaemonSet", args, spec, pod, annotations)


def _field(name: str, path: str) -> Manifest:
    # The default `apiVersion` is written out, because the API server would add it anyway.
    field = {"apiVersion": "v1", "fieldPath": path}
    return {"name": name, "valueFrom": {"fieldRef": field}}

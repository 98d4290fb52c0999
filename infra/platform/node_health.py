"""A pod on each node that watches its machine (setting `nodeHealth`).

What it does and why is said in infra/in_cluster/node_health.py, the program that it runs.
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
GPU_NODE = {"nvidia.com/gpu.present": "true"}  # NVIDIA's operator labels nodes so
# The operator's toolkit gives nvidia-smi and the driver's library to a container that asks so, and
# holds no GPU for it. Its exporter of metrics does the same.
GPU_ENVIRONMENT = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}


@dataclass(frozen=True)
class NodeHealthArgs(ProgramArgs):
    """Where the pods run, and what they do.

    Args:
        cordons: whether they also cordon, and not only tell.
        runtime_class: of pods that see GPUs; empty: the default one.
        has_operator: whether NVIDIA's operator labels the nodes with GPUs.
    """

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
        HEALTH.make(self, name, args, rights(args), ("daemon-set", daemon_set(args)), opts)
        self.program_hash = pulumi.Output.from_input(PROGRAM.hash)
        self.register_outputs({"programHash": self.program_hash})


def rights(args: NodeHealthArgs) -> list[tuple[str, Manifest]]:
    """Role in the stack and manifest of the account and of what it may do."""
    account = HEALTH.account(args, {CORDONS_ANNOTATION: "nodes that are unusable"})
    tell = [rule("pods/status", "patch")]
    if not args.cordons:
        return account.rights(tell, [])
    ask = [rule("pods", "list"), rule("pods/eviction", "create")]
    return account.rights([*tell, *ask], [rule("nodes", "get", "patch")])


def daemon_set(args: NodeHealthArgs) -> Manifest:
    """A pod on each node."""
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
        # The pod is Ready while nothing is wrong: kubectl and monitoring show that by themselves.
        "readinessGates": [{"conditionType": CONDITION}],
        "tolerations": [{"operator": "Exists"}],  # it stays where nothing else may
        **({"nodeSelector": dict(GPU_NODE)} if args.has_operator else {}),
        **({"runtimeClassName": args.runtime_class} if args.runtime_class else {}),
        "securityContext": {
            # The capability SYSLOG has an effect for root alone.
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
    # With its default written out, as the API server would add it.
    field = {"apiVersion": "v1", "fieldPath": path}
    return {"name": name, "valueFrom": {"fieldRef": field}}

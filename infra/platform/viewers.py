"""A ClusterRole for people who may look at runs and change nothing."""

from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import dependencies
from infra.labels import metadata
from infra.objects import kubernetes_object

# What `./disttrain status` and `./disttrain logs` read. No Secret is among it.
READS = {
    "": (
        *("nodes", "namespaces", "pods", "pods/log", "configmaps", "events"),
        "persistentvolumeclaims",  # whether runs reach their data
        "persistentvolumes",  # and where that is
    ),
    "coordination.k8s.io": ("leases",),  # by which nodes report
    "batch": ("jobs",),
    "apps": ("statefulsets",),
    "jobset.x-k8s.io": ("jobsets",),
    "trainer.kubeflow.org": ("trainjobs", "trainingruntimes"),
    "kubeflow.org": ("mpijobs", "pytorchjobs"),
    "leaderworkerset.x-k8s.io": ("leaderworkersets",),
    "batch.volcano.sh": ("jobs",),
    "scheduling.volcano.sh": ("podgroups",),
    "kueue.x-k8s.io": ("workloads", "localqueues"),
}


@dataclass(frozen=True)
class ViewersArgs:
    """Where the platform is, and whose it is."""

    namespace: str
    stack: str
    owner: pulumi.Output[str]


def viewer_role_name(namespace: str) -> str:
    """Each platform has a role of its own, as it goes with its platform."""
    return f"{namespace}-viewer"


def viewer_role(args: ViewersArgs) -> dict[str, Any]:
    """The object. Whoever runs the cluster binds it to people, in one namespace or in all."""
    name = viewer_role_name(args.namespace)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata(name, None, "viewers", stack=args.stack, owner=args.owner),
        "rules": [
            {"apiGroups": [group], "resources": list(kinds), "verbs": ["get", "list", "watch"]}
            for group, kinds in READS.items()
        ],
    }


class Viewers(pulumi.ComponentResource):
    """The ClusterRole; it is bound to nobody."""

    role_name: pulumi.Output[str]

    def __init__(
        self, name: str, args: ViewersArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Viewers", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts))
        kubernetes_object(f"{name}-role", viewer_role(args), child)
        self.role_name = pulumi.Output.from_input(viewer_role_name(args.namespace))
        self.register_outputs({"roleName": self.role_name})

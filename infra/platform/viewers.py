"""A ClusterRole for people who may look at runs and change nothing."""

from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import child_options
from infra.labels import metadata
from infra.objects import kubernetes_object

# What `./disttrain status` and `./disttrain logs` read. There are no Secrets among it.
READS = {
    "": (
        *("nodes", "namespaces", "pods", "pods/log", "configmaps", "events"),
        "persistentvolumeclaims",  # They say whether runs reach their data.
        "persistentvolumes",  # They say where the data are.
    ),
    "coordination.k8s.io": ("leases",),  # Nodes renew them to report that they work.
    "batch": ("jobs",),
    "apps": ("deployments", "statefulsets"),  # Deployments say whether controllers run.
    "jobset.x-k8s.io": ("jobsets",),
    "trainer.kubeflow.org": ("trainjobs", "trainingruntimes"),
    "kubeflow.org": ("mpijobs", "pytorchjobs"),
    "leaderworkerset.x-k8s.io": ("leaderworkersets",),
    "batch.volcano.sh": ("jobs",),
    "scheduling.volcano.sh": ("podgroups",),
    "resource.k8s.io": ("resourceslices",),  # They list GPUs without a device plugin.
    "kueue.x-k8s.io": ("workloads", "localqueues"),
}


@dataclass(frozen=True)
class ViewersArgs:
    """The platform's namespace and stack, and its owner."""

    namespace: str
    stack: str
    owner: pulumi.Output[str]


def viewer_role_name(namespace: str) -> str:
    """Name of the role. Each platform has its own, which `pulumi destroy` removes with it."""
    return f"{namespace}-viewer"


def viewer_role(args: ViewersArgs) -> dict[str, Any]:
    """The manifest of the role.

    The people who run the cluster bind it to users, in one namespace or in all.
    """
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
    """The ClusterRole. This program binds it to nobody."""

    def __init__(
        self, name: str, args: ViewersArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Viewers", name, {}, opts)
        child = child_options(self, opts)
        kubernetes_object(f"{name}-role", viewer_role(args), child)
        self.register_outputs({})

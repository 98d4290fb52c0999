"""Tells the cluster's own monitoring where the runs are, what to warn of and what to show."""

from dataclasses import dataclass

import pulumi

from infra.dependencies import dependencies
from infra.kube_command import Connection, kube_command
from infra.labels import metadata
from infra.monitoring.objects import (
    GROUP_VERSION,
    MONITORING,
    dashboard_config_map,
    pod_monitor,
    prometheus_rule,
)
from infra.objects import kubernetes_object
from infra.workloads import WORKLOADS

NAME = "disttrain"
OTHERWISE = (
    f"monitoring: 'existing' cannot be used: the cluster serves no {GROUP_VERSION}, so no "
    "Prometheus operator is there. Install one, such as kube-prometheus-stack, or let a "
    "Prometheus of your own find the pods by their annotations: pulumi config set monitoring none"
)


@dataclass(frozen=True)
class MonitoringArgs:
    """The cluster, and whose platform it is."""

    connection: Connection
    stack: str


class Monitoring(pulumi.ComponentResource):
    """PodMonitor, PrometheusRule and dashboard, after a look whether the cluster knows them."""

    monitored: pulumi.Output[str]
    """The namespace whose pods are read."""

    def __init__(
        self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Monitoring", name, {}, opts)
        connection = args.connection
        look = kube_command(
            f"{name}-look",
            "served",
            connection,
            {"group_version": GROUP_VERSION, "served_kind": "PodMonitor", "otherwise": OTHERWISE},
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        child = pulumi.ResourceOptions(parent=self, depends_on=[look])
        about = metadata(
            NAME, connection.namespace, MONITORING, stack=args.stack, owner=connection.owner
        )
        containers = [kind.container for kind in WORKLOADS.values()]
        kubernetes_object(f"{name}-pods", pod_monitor(about, containers), child)
        kubernetes_object(f"{name}-rules", prometheus_rule(about), child)
        board = {**about, "name": f"{NAME}-dashboard"}
        kubernetes_object(f"{name}-dashboard", dashboard_config_map(board), child)
        self.monitored = pulumi.Output.from_input(connection.namespace)
        self.register_outputs({"monitored": self.monitored})

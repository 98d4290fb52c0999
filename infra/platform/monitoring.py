"""Makes the objects that tell a Prometheus operator what to read, to warn of and to show."""

from dataclasses import dataclass
from typing import Any

import pulumi

from infra.controllers import CONTROLLERS
from infra.dependencies import child_options
from infra.kube_command import Connection, kube_command
from infra.labels import metadata
from infra.monitoring.objects import (
    GROUP_VERSION,
    MONITORING,
    WEBHOOK_KEY,
    alert_receiver,
    dashboard_config_map,
    gpu_pod_monitor,
    pod_monitor,
    prometheus_rule,
    queue_monitor,
)
from infra.objects import Manifest, kubernetes_object, secret_value
from infra.platform.controllers import controller_field
from infra.platform.gpu_operator_values import NAMESPACE as OPERATOR_NAMESPACE
from infra.settings.controllers import PROMETHEUS
from infra.settings.monitoring import AlertWebhook
from infra.workloads import WORKLOADS

NAME = "disttrain"
WEBHOOK = f"{NAME}-alert-webhook"
SETTING = "monitoring: 'existing'"
OTHERWISE = (
    f"the cluster serves no {GROUP_VERSION}, so it has no Prometheus operator. Let the platform "
    "install one (pulumi config set monitoring install), or let your own Prometheus find the "
    "pods by their annotations: pulumi config set monitoring none"
)


OTHERWISE_OWN = (
    "this stack has installed the Prometheus operator (monitoring: 'install'), and would remove it "
    "with that setting. It is left as it is. Keep install; or remove it first (pulumi config set "
    "monitoring none; pulumi up), and install another one"
)


@dataclass(frozen=True)
class MonitoringArgs:
    """What there is to monitor, and who is told of alerts.

    Args:
        connection: how the cluster is reached.
        stack: name of the stack, for people.
        is_brought: whether the platform installs the Prometheus operator itself.
        exports_gpus: whether the platform's GPU Operator runs DCGM's exporter of GPU metrics.
        kueue_namespace: namespace of the Kueue that the platform installs; empty: it installs none.
        alert_webhook: the webhook that is told of alerts; None: there is none.
        authorities: name of the ConfigMap with further certificate authorities to trust; empty:
            there is none.
    """

    connection: Connection
    stack: str
    is_brought: bool
    exports_gpus: bool
    kueue_namespace: str
    alert_webhook: AlertWebhook | None
    authorities: str


class Monitoring(pulumi.ComponentResource):
    """The PodMonitors, the PrometheusRule, the dashboard and the receiver of alerts.

    Before they are made, a task checks whether the cluster serves these kinds.
    """

    def __init__(
        self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Monitoring", name, {}, opts)
        connection = args.connection
        leaves = {
            "leaves": controller_field(CONTROLLERS[PROMETHEUS]),
            "otherwise_leaves": OTHERWISE_OWN,
        }
        served = kube_command(
            f"{name}-look",
            "served",
            connection,
            {
                "group_version": GROUP_VERSION,
                "served_kind": "PodMonitor",
                "setting": SETTING,
                "otherwise": OTHERWISE,
                **({} if args.is_brought else leaves),
            },
            child_options(self, opts),
        )
        child = pulumi.ResourceOptions(parent=self, depends_on=[served])
        about = metadata(
            NAME, connection.namespace, MONITORING, stack=args.stack, owner=connection.owner
        )
        containers = [kind.container for kind in WORKLOADS.values()]
        kubernetes_object(f"{name}-pods", pod_monitor(about, containers), child)
        if args.exports_gpus:
            gpus = {**about, "name": f"{NAME}-gpus"}
            kubernetes_object(f"{name}-gpus", gpu_pod_monitor(gpus, OPERATOR_NAMESPACE), child)
        if args.kueue_namespace:
            queues = queue_monitor({**about, "name": f"{NAME}-queues"}, args.kueue_namespace)
            kubernetes_object(f"{name}-queues", queues, child)
        kubernetes_object(f"{name}-rules", prometheus_rule(about), child)
        if args.alert_webhook:
            webhook = args.alert_webhook
            secret = kubernetes_object(f"{name}-webhook", webhook_secret(webhook, about), child)
            after = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[secret]))
            receiver = alert_receiver(about, WEBHOOK, webhook.proxy, args.authorities)
            kubernetes_object(f"{name}-receiver", receiver, after)
        board = {**about, "name": f"{NAME}-dashboard"}
        kubernetes_object(f"{name}-dashboard", dashboard_config_map(board), child)
        self.register_outputs({})


def webhook_secret(webhook: AlertWebhook, about: dict[str, Any]) -> Manifest:
    """The Secret with the webhook's address."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**about, "name": WEBHOOK},
        "data": {WEBHOOK_KEY: secret_value(webhook.address.output)},
    }

"""The objects through which the cluster's Prometheus and Grafana find the runs of a platform.

The PodMonitor and the PrometheusRule are for the Prometheus operator. The ConfigMap is for the
program beside Grafana that loads dashboards, as in kube-prometheus-stack. All functions are pure.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from infra.labels import COMPONENT_LABEL
from infra.monitoring.dashboard import dashboard
from infra.monitoring.rules import rule_file
from infra.names import CA_KEY, TRAINING
from infra.objects import Manifest

GROUP_VERSION = "monitoring.coreos.com/v1"
RECEIVER_VERSION = "monitoring.coreos.com/v1alpha1"
WEBHOOK_KEY = "address"  # the key in the Secret with the webhook's address
MONITORING = "monitoring"  # the component label of these objects
SCRAPE, PORT, PATH = "prometheus.io/scrape", "prometheus.io/port", "prometheus.io/path"
_META = "__meta_kubernetes_pod"
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # a file in each pod


def scrape_annotations(port: int) -> dict[str, str]:
    """The annotations by which a Prometheus without an operator finds a training pod."""
    return {SCRAPE: "true", PORT: str(port), PATH: "/metrics"} if port else {}


def pod_monitor(metadata: Mapping[str, Any], containers: Collection[str]) -> Manifest:
    """The PodMonitor of all training pods of the namespace, at the port in their annotation.

    The pods do not declare this port. For a pod in the network of its node, a declared port would
    be reserved on the node, and two runs could not share the node.

    Args:
        metadata: the metadata of the PodMonitor.
        containers: the names that the container of a training pod may have.
    """
    port = f"{_META}_annotation_prometheus_io_port"
    to_port = {
        "sourceLabels": [f"{_META}_ip", port],
        "separator": ";",
        "targetLabel": "__address__",
    }
    relabelings = [
        {"sourceLabels": [port], "action": "keep", "regex": r"\d+"},
        {
            "sourceLabels": [f"{_META}_container_name"],
            "action": "keep",
            "regex": "|".join(sorted(set(containers))),
        },
        {**to_port, "regex": r"([0-9.]+);(\d+)", "replacement": "$1:$2"},
        {**to_port, "regex": r"([0-9a-fA-F:]+);(\d+)", "replacement": "[$1]:$2"},
    ]
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "PodMonitor",
        "metadata": dict(metadata),
        "spec": {
            "selector": {
                "matchLabels": {
                    "app.kubernetes.io/name": "disttrain",
                    COMPONENT_LABEL: TRAINING,
                }
            },
            "podMetricsEndpoints": [{"path": "/metrics", "relabelings": relabelings}],
        },
    }


def gpu_pod_monitor(metadata: Mapping[str, Any], namespace: str) -> Manifest:
    """The PodMonitor of the pods of DCGM's exporter, which the GPU Operator makes.

    The labels `pod` and `namespace` of their metrics name the pod that has a GPU. `honorLabels`
    keeps them.

    Args:
        metadata: the metadata of the PodMonitor.
        namespace: the namespace of the GPU Operator.
    """
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "PodMonitor",
        "metadata": dict(metadata),
        "spec": {
            "namespaceSelector": {"matchNames": [namespace]},
            "selector": {"matchLabels": {"app": "nvidia-dcgm-exporter"}},
            "podMetricsEndpoints": [{"port": "metrics", "honorLabels": True}],
        },
    }


def queue_monitor(metadata: Mapping[str, Any], namespace: str) -> Manifest:
    """The ServiceMonitor of Kueue's controller, as Kueue's chart makes the Service.

    Kueue shows its metrics only to accounts with the right to get /metrics. So Prometheus sends its
    account's token, and its own chart gives it the right. Kueue makes a new certificate for itself
    at each start, so Prometheus cannot check the certificate.

    Args:
        metadata: the metadata of the ServiceMonitor.
        namespace: the namespace of Kueue.
    """
    labels = {
        "app.kubernetes.io/name": "kueue",
        "app.kubernetes.io/component": "metrics-service",
    }
    endpoint = {
        "port": "https",
        "scheme": "https",
        "path": "/metrics",
        "bearerTokenFile": _TOKEN,
        "tlsConfig": {"insecureSkipVerify": True},
    }
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ServiceMonitor",
        "metadata": dict(metadata),
        "spec": {
            "namespaceSelector": {"matchNames": [namespace]},
            "selector": {"matchLabels": labels},
            "endpoints": [endpoint],
        },
    }


def prometheus_rule(metadata: Mapping[str, Any]) -> Manifest:
    """The PrometheusRule with the alert rules."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "PrometheusRule",
        "metadata": dict(metadata),
        "spec": rule_file(metadata["namespace"]),
    }


def alert_receiver(
    metadata: Mapping[str, Any], secret: str, proxy: str, authorities: str
) -> Manifest:
    """The AlertmanagerConfig that sends the namespace's alerts, and their ends, to a webhook.

    Args:
        metadata: the metadata of the AlertmanagerConfig.
        secret: the name of the Secret with the webhook's address, in the same namespace.
        proxy: the address of the proxy to use; empty for none.
        authorities: the name of the ConfigMap with the certificate authorities to trust for the
            webhook; empty for those of the system.
    """
    address = {"name": secret, "key": WEBHOOK_KEY}
    way: dict[str, Any] = {"proxyUrl": proxy} if proxy else {}
    if authorities:
        way["tlsConfig"] = {"ca": {"configMap": {"name": authorities, "key": CA_KEY}}}
    webhook = {"urlSecret": address, "sendResolved": True, **({"httpConfig": way} if way else {})}
    return {
        "apiVersion": RECEIVER_VERSION,
        "kind": "AlertmanagerConfig",
        "metadata": dict(metadata),
        "spec": {
            "route": {"receiver": "webhook", "groupBy": ["alertname", "run"]},
            "receivers": [{"name": "webhook", "webhookConfigs": [webhook]}],
        },
    }


def dashboard_config_map(metadata: Mapping[str, Any]) -> Manifest:
    """The ConfigMap with the dashboard, and with the label by which Grafana's loader finds it."""
    labels = {**dict(metadata.get("labels", {})), "grafana_dashboard": "1"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, "labels": labels},
        "data": {"disttrain.json": json.dumps(dashboard(), indent=1)},
    }

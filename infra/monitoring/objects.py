"""The objects by which a monitoring stack of the cluster finds the runs of a platform. Pure.

PodMonitor and PrometheusRule are for the Prometheus operator; the ConfigMap is for the program
beside Grafana that loads dashboards, as kube-prometheus-stack has it.
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
WEBHOOK_KEY = "address"  # of the Secret
MONITORING = "monitoring"  # the component label of these objects
SCRAPE, PORT, PATH = "prometheus.io/scrape", "prometheus.io/port", "prometheus.io/path"
_META = "__meta_kubernetes_pod"
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # a file of each pod


def scrape_annotations(port: int) -> dict[str, str]:
    """Annotations of a training pod, by which a Prometheus without an operator finds it."""
    return {SCRAPE: "true", PORT: str(port), PATH: "/metrics"} if port else {}


def pod_monitor(metadata: Mapping[str, Any], containers: Collection[str]) -> Manifest:
    """All training pods of the namespace, at the port that their annotation names.

    The pods declare no port for it: on a pod in its node's network that would keep the port of the
    node for one pod alone, and two runs could not share a node.

    Args:
        metadata: of the object.
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
    """The pods of DCGM's exporter, as the GPU Operator makes them.

    `pod` and `namespace` in their samples are those of the pod that has a GPU, and stay so.

    Args:
        metadata: of the object.
        namespace: of the GPU Operator.
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
    """The controller of Kueue, as its chart makes it.

    It asks who reads: Prometheus shows its account's token, and needs the right to get /metrics,
    which its own chart gives it. The certificate is one that Kueue makes for itself at each start,
    so nobody can know it before.

    Args:
        metadata: of the object.
        namespace: of Kueue.
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
    """The alert rules."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "PrometheusRule",
        "metadata": dict(metadata),
        "spec": rule_file(metadata["namespace"]),
    }


def alert_receiver(
    metadata: Mapping[str, Any], secret: str, proxy: str, authorities: str
) -> Manifest:
    """Alertmanager tells a webhook of the namespace's alerts, and of their end.

    Args:
        metadata: of the object.
        secret: name of the Secret with the webhook's address, in the same namespace.
        proxy: the proxy on the way; empty: none.
        authorities: name of the ConfigMap with those that the webhook's certificate may come from;
            empty: the system's.
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
    """The dashboard, with the label by which it is found."""
    labels = {**dict(metadata.get("labels", {})), "grafana_dashboard": "1"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, "labels": labels},
        "data": {"disttrain.json": json.dumps(dashboard(), indent=1)},
    }

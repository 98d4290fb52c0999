"""Controller `kube-prometheus-stack`, for `monitoring: install`: Prometheus, Alertmanager, Grafana.

https://github.com/prometheus-community/helm-charts. Its project publishes no list of digests; this
one is what several people who pulled this version from ghcr.io have written down, and Helm refuses
any other content.
"""

from collections.abc import Mapping
from typing import Any

from infra.controllers.kind import TOLERATIONS, ControllerKind, PinnedChart
from infra.names import ONE_NODE

GROUP = "monitoring.coreos.com"
PLURALS = (
    "alertmanagerconfigs",
    "alertmanagers",
    "podmonitors",
    "probes",
    "prometheusagents",
    "prometheuses",
    "prometheusrules",
    "scrapeconfigs",
    "servicemonitors",
    "thanosrulers",
)
# Otherwise Prometheus takes only objects with the label of this release, and ours have none.
_SELECTED = ("podMonitor", "probe", "rule", "scrapeConfig", "serviceMonitor")
# On k3s these have no pods, and elsewhere they answer on their own machine alone: the chart's rules
# would warn of them all the time.
_NOT_THERE = ("kubeControllerManager", "kubeEtcd", "kubeProxy", "kubeScheduler")
# As the operator names the claim of its first pod; its Prometheus has the release's name and this.
_PROMETHEUS = "kube-prometheus-stack-prometheus"
CLAIM = f"prometheus-{_PROMETHEUS}-db-prometheus-{_PROMETHEUS}-0"
_SHARE_FOR_NUMBERS = 0.8  # of a claim; the rest is for what is being written and put together


def with_claim(values: Mapping[str, Any], gib: int, class_name: str) -> dict[str, Any]:
    """The chart's values with a claim for Prometheus' numbers. Pure.

    Args:
        values: those without it.
        gib: size of the claim in GiB. The oldest numbers go before it is full.
        class_name: its storage class.
    """
    claim = {
        "storageClassName": class_name,
        "accessModes": [ONE_NODE],
        "resources": {"requests": {"storage": f"{gib}Gi"}},
    }
    spec = {
        **values["prometheus"]["prometheusSpec"],
        "retentionSize": f"{int(gib * 1024 * _SHARE_FOR_NUMBERS)}MiB",
        "storageSpec": {"volumeClaimTemplate": {"spec": claim}},
    }
    return {**values, "prometheus": {**values["prometheus"], "prometheusSpec": spec}}


def _tolerating() -> dict[str, Any]:
    return {"tolerations": list(TOLERATIONS)}


KIND = ControllerKind(
    name="kube-prometheus-stack",
    title="the Prometheus operator",
    version="91.4.1",
    source=PinnedChart(
        address="oci://ghcr.io/prometheus-community/charts/kube-prometheus-stack",
        digest="sha256:e1b65a9105560251ad78b2ef95ad806245e7311a989b60bdbb315c3878bc21d9",
        values={
            "crds": {"enabled": True},
            "prometheusOperator": {
                # They only check what people write, and need one more image and two more Jobs.
                "admissionWebhooks": {"enabled": False},
                "tls": {"enabled": False},
                **_tolerating(),
            },
            "prometheus": {
                "prometheusSpec": {
                    **{f"{name}SelectorNilUsesHelmValues": False for name in _SELECTED},
                    "retention": "15d",
                    **_tolerating(),
                }
            },
            "alertmanager": {"alertmanagerSpec": _tolerating()},
            "grafana": _tolerating(),
            "kube-state-metrics": _tolerating(),
            **{name: {"enabled": False} for name in _NOT_THERE},
        },
    ),
    namespace="disttrain-monitoring",
    groups=(GROUP,),
    definitions=tuple(f"{plural}.{GROUP}" for plural in PLURALS),
    probe={
        "apiVersion": f"{GROUP}/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "disttrain-trial", "namespace": "default"},
        "spec": {"groups": []},
    },
    awaited=("Prometheus", "Alertmanager"),
    leaves=(f"PersistentVolumeClaim {CLAIM}",),  # a StatefulSet of the operator's makes it
    chosen_by=("monitoring", "install"),
    otherwise="Set monitoring to existing: the runs are shown by the one that is there",
)

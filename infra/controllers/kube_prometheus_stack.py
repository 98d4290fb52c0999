"""Controller `kube-prometheus-stack`, for `monitoring: install`: Prometheus, Alertmanager, Grafana.

https://github.com/prometheus-community/helm-charts. Its project publishes no list of digests. The
digest here is the one that several people have published who pulled this version from ghcr.io. Helm
refuses any other content.
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
# By default Prometheus uses only objects with the label of this release. Values for these kinds
# let it use all objects, because disttrain's objects do not have that label.
_SELECTED = ("podMonitor", "probe", "rule", "scrapeConfig", "serviceMonitor")
# On k3s these components have no pods. On other clusters they answer only on their own machine. So
# the chart's rules would always warn of them.
_NOT_THERE = ("kubeControllerManager", "kubeEtcd", "kubeProxy", "kubeScheduler")
# The operator gives this name to the claim of Prometheus' first pod.
_PROMETHEUS = "kube-prometheus-stack-prometheus"
CLAIM = f"prometheus-{_PROMETHEUS}-db-prometheus-{_PROMETHEUS}-0"
_SHARE_FOR_NUMBERS = 0.8  # of a claim; the rest is for what Prometheus is writing and compacting


def with_claim(values: Mapping[str, Any], gib: int, class_name: str) -> dict[str, Any]:
    """The chart's values with a claim for Prometheus' metrics. This function is pure.

    Args:
        values: the chart's values without the claim.
        gib: the size of the claim in GiB. Prometheus deletes its oldest data before the claim is
            full.
        class_name: the storage class of the claim.
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
                # These webhooks only check objects that people write. They would need one more
                # image and two more Jobs.
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
    leaves=(f"PersistentVolumeClaim {CLAIM}",),  # made by a StatefulSet of the operator
    chosen_by=("monitoring", "install"),
    otherwise="Set monitoring to existing: the runs are shown by the one that is there",
)

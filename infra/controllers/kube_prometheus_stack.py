"""Controller `kube-prometheus-stack`, for `monitoring: install`: Prometheus, Alertmanager, Grafana.

https://github.com/prometheus-community/helm-charts. Its project publishes no list of digests; this
one is what several people who pulled this version from ghcr.io have written down, and Helm refuses
any other content.
"""

from typing import Any

from infra.controllers.kind import TOLERATIONS, ControllerKind, PinnedChart

GROUP = "monitoring.coreos.com"
OPERATOR_VERSION = "0.94.0"
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
    chosen_by=("monitoring", "install"),
    otherwise="Set monitoring to existing: the runs are shown by the one that is there",
)

"""A stand-in of kube-state-metrics, whose program the tests do not have.

It asks a real API server for its pods, and offers the three metrics that our alert rules use, with
the names, labels and meanings of the real program (docs/metrics/workload/pod-metrics.md of
https://github.com/kubernetes/kube-state-metrics). In particular, as with the real program:

* A pod without a condition Ready, such as one that the scheduler has just refused, has no sample of
  kube_pod_status_ready at all. A pod with the condition has a sample for each of true, false and
  unknown.
* A pod that is gone has no samples any more, so no sample says that it has recovered.
* The labels of pods are not offered. The real program offers them only if it is told to.
* The labels `namespace` and `pod` of a sample name the pod that it is about. A Prometheus without
  `honor_labels` replaces them by those of this program's own pod.

The real program watches the API server. This one asks it again for each scrape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from infra.kube.api_server.api import Api
from tests.loopback import LoopbackServer

PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
CONDITIONS = ("True", "False", "Unknown")
Pod = Mapping[str, Any]


def page(pods: Sequence[Pod]) -> str:
    """Return the metrics of these pods in Prometheus' text format. This function is pure."""
    families = {
        "kube_pod_info": _info,
        "kube_pod_status_phase": _phase,
        "kube_pod_status_ready": _ready,
    }
    lines = list[str]()
    for name, samples in families.items():
        lines.append(f"# TYPE {name} gauge")
        for pod in pods:
            about = pod["metadata"]
            common = {"namespace": about["namespace"], "pod": about["name"], "uid": about["uid"]}
            for labels, value in samples(pod):
                pairs = ",".join(f'{key}="{text}"' for key, text in {**common, **labels}.items())
                lines.append(f"{name}{{{pairs}}} {int(value)}")
    return "\n".join([*lines, ""])


def _info(pod: Pod) -> Iterator[tuple[dict[str, str], bool]]:
    spec, status = pod["spec"], pod["status"]
    owners = pod["metadata"].get("ownerReferences", [])
    maker = next((owner for owner in owners if owner.get("controller")), {})
    labels = {
        "host_ip": status.get("hostIP", ""),
        "pod_ip": status.get("podIP", ""),
        "node": spec.get("nodeName", ""),
        "created_by_kind": maker.get("kind", ""),
        "created_by_name": maker.get("name", ""),
        "priority_class": spec.get("priorityClassName", ""),
        "host_network": str(bool(spec.get("hostNetwork"))).lower(),
    }
    yield labels, True


def _phase(pod: Pod) -> Iterator[tuple[dict[str, str], bool]]:
    found = pod["status"].get("phase")
    if found:
        yield from (({"phase": phase}, phase == found) for phase in PHASES)


def _ready(pod: Pod) -> Iterator[tuple[dict[str, str], bool]]:
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "Ready":
            for status in CONDITIONS:
                yield {"condition": status.lower()}, status == condition["status"]


class StateMetricsStandIn(LoopbackServer):
    """Serves `/metrics` at a port of the loopback."""

    def __init__(self, api: Api) -> None:
        """Serve the pods that `api` lists. It must be allowed to list all pods of the cluster.

        No other thread may use `api` as long as this server runs.
        """

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = page(api.list("/api/v1/pods")).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(HTTPServer, Handler)

"""Gives a cluster what a platform needs to install the Prometheus operator without internet.

The chart is a stand-in for kube-prometheus-stack, which is in no Go module. It has the same name,
version and keys of values, the operator's own definitions and roles, and objects for one Prometheus
and one Alertmanager. The operator, its reloader, Prometheus and Alertmanager are the projects'
programs. The chart does not contain Grafana, node-exporter and kube-state-metrics.
"""

import shutil
from pathlib import Path

import yaml

from sandbox.image_archive import image_archive
from sandbox.toolchain import tool_folder
from sandbox.tools.services import ALERTMANAGER_SERVER, PROMETHEUS_IN_CLUSTER, PROMETHEUS_OPERATOR
from sandbox.tools.tool import Tool
from tests.e2e.lab import Lab

CHART = Path(__file__).parent.parent / "monitoring" / "chart"
NAME = "kube-prometheus-stack"
SETTINGS = {"monitoring": "install"}
_USER = "65534"
_OPERATOR = "quay.io/prometheus-operator"
_IMAGES: tuple[tuple[Tool, str, str], ...] = (
    (
        PROMETHEUS_OPERATOR,
        "operator",
        f"{_OPERATOR}/prometheus-operator:v{PROMETHEUS_OPERATOR.version}",
    ),
    (
        PROMETHEUS_OPERATOR,
        "prometheus-config-reloader",
        f"{_OPERATOR}/prometheus-config-reloader:v{PROMETHEUS_OPERATOR.version}",
    ),
    (
        PROMETHEUS_IN_CLUSTER,
        "prometheus",
        f"quay.io/prometheus/prometheus:v{PROMETHEUS_IN_CLUSTER.version}",
    ),
    (
        ALERTMANAGER_SERVER,
        "alertmanager",
        f"quay.io/prometheus/alertmanager:v{ALERTMANAGER_SERVER.version}",
    ),
)


def import_images(lab: Lab) -> None:
    """Put the programs into the cluster's containerd, under the names that the pods ask for."""
    for tool, program, image in _IMAGES:
        archive = lab.scratch / f"{program}.tar"
        archive.write_bytes(image_archive(tool_folder(tool) / program, image, _USER, "bin"))
        lab.ctr("images", "import", str(archive))
        archive.unlink()


def make_chart(folder: Path) -> Path:
    """Make the chart from the tests' files and the operator's module; return its folder."""
    chart = folder / NAME
    shutil.copytree(CHART, chart)
    example = tool_folder(PROMETHEUS_OPERATOR) / "example"
    # The definitions are in a subchart, as in the real chart. Helm keeps a chart's files in a
    # Secret, which would be too small for the definitions, but it does not keep those of subcharts.
    definitions = chart / "charts" / "crds" / "crds"
    definitions.mkdir()
    for definition in (example / "prometheus-operator-crd").glob("*.yaml"):
        shutil.copyfile(definition, definitions / definition.name)
    parts = [
        *(example / "rbac" / "prometheus-operator").glob("prometheus-operator-cluster-role*.yaml"),
        *(example / "rbac" / "prometheus-operator").glob("*-service-account.yaml"),
        *(example / "rbac" / "prometheus-operator").glob("*-deployment.yaml"),
        *(example / "rbac" / "prometheus").glob("prometheus-*.yaml"),
    ]
    for part in parts:
        (chart / "templates" / f"{part.parent.name}-{part.name}").write_text(_as_template(part))
    return chart


def _as_template(part: Path) -> str:
    """Return the object as a template, with the release's namespace and the values' tolerations."""
    item = yaml.safe_load(part.read_text())
    if item["kind"] == "Deployment":
        item["spec"]["template"]["spec"]["tolerations"] = "TOLERATIONS"
    text = yaml.safe_dump(item).replace("namespace: default", "namespace: {{ .Release.Namespace }}")
    return text.replace("TOLERATIONS", "{{ toJson .Values.prometheusOperator.tolerations }}")

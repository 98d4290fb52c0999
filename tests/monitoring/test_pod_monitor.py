"""The rules of our PodMonitor in the real promtool, which make an address from a pod's labels."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from infra.monitoring.objects import pod_monitor, scrape_annotations
from sandbox.toolchain import tool_folder
from sandbox.tools.services import PROMETHEUS_SERVER
from trainer.monitoring import endpoint

CONTAINERS = ["trainer", "pytorch"]
META = "__meta_kubernetes_pod_"


def snake_case(name: str) -> str:
    """Return a name such as `sourceLabels` as `source_labels`."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


def discovered(address: str, ip: str, container: str, annotations: dict[str, str]) -> Any:
    """Return a target as Prometheus' discovery of pods gives it for a container."""
    marks = {
        f"{META}annotation_{re.sub('[^a-z]', '_', key)}": value
        for key, value in annotations.items()
    }
    labels = {f"{META}ip": ip, f"{META}container_name": container, **marks}
    return {"targets": [address], "labels": labels}


def addresses(folder: Path, targets: list[Any]) -> list[str]:
    """Return the addresses of the targets that the rules keep."""
    (spec,) = pod_monitor({}, CONTAINERS)["spec"]["podMetricsEndpoints"]
    relabelings = [{snake_case(k): v for k, v in rule.items()} for rule in spec["relabelings"]]
    job = {
        "job_name": "pods",
        "metrics_path": spec["path"],
        "relabel_configs": relabelings,
        "file_sd_configs": [{"files": ["targets.json"]}],
    }
    (folder / "targets.json").write_text(json.dumps(targets))
    (folder / "prometheus.json").write_text(json.dumps({"scrape_configs": [job]}))
    program = str(tool_folder(PROMETHEUS_SERVER) / "promtool")
    command = [program, "check", "service-discovery", "--timeout=5s", "prometheus.json", "pods"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found = [target["labels"] for target in json.loads(done.stdout)]
    return [labels["__address__"] for labels in found if labels and "__address__" in labels]


def test_pods_are_read_at_the_port_of_their_annotation(tmp_path: Path) -> None:
    marks = scrape_annotations(9464)
    targets = [
        discovered("10.42.0.7", "10.42.0.7", "trainer", marks),
        discovered("fd00::7", "fd00::7", "pytorch", scrape_annotations(9500)),
        discovered("10.42.0.7:15090", "10.42.0.7", "istio-proxy", marks),
        discovered("10.42.0.8", "10.42.0.8", "trainer", scrape_annotations(0)),
    ]
    assert sorted(addresses(tmp_path, targets)) == ["10.42.0.7:9464", "[fd00::7]:9500"]


def test_pods_and_monitor_name_the_path_that_is_served() -> None:
    (spec,) = pod_monitor({}, CONTAINERS)["spec"]["podMetricsEndpoints"]
    assert spec["path"] == scrape_annotations(1)["prometheus.io/path"] == endpoint.PATH

"""What the setting `monitoring` tells Prometheus about the runs, and who is told of alerts."""

import base64
import json
from pathlib import Path

from tests.unit.certificates import AUTHORITY
from tests.unit.program.parts import training_template
from tests.unit.stacks import deploy


def test_monitoring_of_the_cluster_is_told_of_the_runs(tmp_path: Path) -> None:
    """With `monitoring: existing`, the cluster's Prometheus is told of the runs' pods, rules and
    dashboard, after a check that the cluster knows these kinds of objects.
    """
    result = deploy("dev", tmp_path, {"monitoring": "existing"})
    kinds = {
        "monitoring-pods": "PodMonitor",
        "monitoring-rules": "PrometheusRule",
        "monitoring-dashboard": "ConfigMap",
    }
    look = result.one("monitoring-look")
    for name, kind in kinds.items():
        made = result.one(name)
        assert made.type.endswith(f":{kind}")
        assert made.inputs["metadata"]["namespace"] == "disttrain"
        assert look.urn in made.request.dependencies
    selector = result.one("monitoring-pods").inputs["spec"]["selector"]["matchLabels"]
    assert selector.items() <= training_template(result)["metadata"]["labels"].items()
    assert result.one("monitoring-dashboard").inputs["metadata"]["labels"]["grafana_dashboard"]
    job = json.loads(look.inputs["stdin"])
    assert job["group_version"] == "monitoring.coreos.com/v1"
    assert job["setting"] == "monitoring: 'existing'"
    assert "pulumi config set monitoring none" in job["otherwise"]
    assert job["leaves"]["name"] == "kube-prometheus-stack"


def test_prometheus_is_led_to_the_platforms_own_kueue(tmp_path: Path) -> None:
    """Prometheus reads the metrics of a Kueue that the platform installs. It is not led to another
    Kueue, whose namespace is not known.
    """
    changes = {"monitoring": "existing", "controllers": ["kueue"]}
    result = deploy("dev", tmp_path, changes)
    made = result.one("monitoring-queues")
    assert made.type.endswith(":ServiceMonitor")
    assert made.inputs["metadata"]["namespace"] == "disttrain"
    assert made.inputs["spec"]["namespaceSelector"]["matchNames"] == ["kueue-system"]
    look = result.one("monitoring-look")
    assert result.one("controller-kueue-open").urn in look.request.dependencies
    assert look.urn in made.request.dependencies
    without = deploy("dev", tmp_path, {"monitoring": "existing"})
    assert "monitoring-queues" not in [resource.name for resource in without.resources]


def test_monitoring_that_is_installed_comes_before_what_it_reads(tmp_path: Path) -> None:
    """With `monitoring: install`, Prometheus is installed before the check for its kinds and the
    objects of these kinds, and it reads objects of every Helm release.
    """
    result = deploy("dev", tmp_path, {"monitoring": "install"})
    there = result.one("controller-kube-prometheus-stack-open").urn
    assert there in result.one("monitoring-look").request.dependencies
    assert "leaves" not in json.loads(result.one("monitoring-look").inputs["stdin"])
    values = result.one("controller-kube-prometheus-stack-release").inputs["values"]
    spec = values["prometheus"]["prometheusSpec"]
    assert spec["podMonitorSelectorNilUsesHelmValues"] is False
    assert spec["ruleSelectorNilUsesHelmValues"] is False


def test_prometheus_numbers_get_a_claim_where_it_is_set(tmp_path: Path) -> None:
    """With `monitoringStorageGib`, Prometheus keeps its numbers in a claim of that size and class.
    The cluster is asked for the class before anything of Prometheus is made. Without the setting
    there is no claim.
    """
    claim = {"monitoringStorageGib": 20, "monitoringStorageClass": "fast"}
    result = deploy("sandbox", tmp_path, {"monitoring": "install", **claim})
    name = "controller-kube-prometheus-stack"
    release = result.one(f"{name}-release")
    spec = release.inputs["values"]["prometheus"]["prometheusSpec"]
    assert spec["storageSpec"]["volumeClaimTemplate"]["spec"] == {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "20Gi"}},
    }
    assert spec["retentionSize"] == "16384MiB"
    assert spec["retention"] == "15d"
    look = result.one(f"{name}-storage")
    assert look.urn in result.one(f"{name}-namespace").request.dependencies
    job = json.loads(look.inputs["stdin"])
    assert (job["class_name"], job["gib"], job["class_seconds"]) == ("fast", 20, 0)
    assert job["claim_namespace"] == "disttrain-monitoring"
    on_k3s = deploy("dev", tmp_path, {"monitoring": "install", **claim}).one(f"{name}-storage")
    assert json.loads(on_k3s.inputs["stdin"])["class_seconds"] == 60
    without = deploy("sandbox", tmp_path, {"monitoring": "install"})
    spec = without.one(f"{name}-release").inputs["values"]["prometheus"]["prometheusSpec"]
    assert not {"storageSpec", "retentionSize"} & spec.keys()
    assert f"{name}-storage" not in [resource.name for resource in without.resources]


def test_webhook_is_told_of_alerts_by_a_secret(tmp_path: Path) -> None:
    """Alerts go to the webhook, and its address is in a Secret and in no other object."""
    address = "https://hooks.example.org/T0/B0/hunter2"
    changes = {"monitoring": "install", "alertWebhook": address}
    result = deploy("sandbox", tmp_path, changes, ["alertWebhook"])
    secret = result.one("monitoring-webhook").inputs
    assert base64.b64decode(secret["data"]["address"]).decode() == address
    (receiver,) = result.one("monitoring-receiver").inputs["spec"]["receivers"]
    (webhook,) = receiver["webhookConfigs"]
    assert webhook["urlSecret"] == {"name": secret["metadata"]["name"], "key": "address"}
    others = [each for each in result.resources if each.name != "monitoring-webhook"]
    assert "hunter2" not in json.dumps([each.inputs for each in others], default=str)


def test_webhook_is_reached_by_the_proxy(tmp_path: Path) -> None:
    """Alerts go to the webhook through the proxy, or without it if `noProxy` or the address says
    so. Behind a proxy nobody would be told of alerts otherwise.
    """
    authority = tmp_path / "authority.pem"
    authority.write_text(AUTHORITY)
    changes: dict[str, object] = {
        "monitoring": "install",
        "httpsProxy": "http://proxy.example.org:3128",
        "noProxy": "corp.example.org",
        "nodeAddress": "192.0.2.7",
        "caBundle": str(authority),
    }
    ways = {
        "https://hooks.example.com/1": {"proxyUrl": "http://proxy.example.org:3128"},
        "https://hooks.corp.example.org/1": {},
        "http://hooks.example.com/1": {},
    }
    for address, way in ways.items():
        made = deploy("sandbox", tmp_path, {**changes, "alertWebhook": address}, ["alertWebhook"])
        (receiver,) = made.one("monitoring-receiver").inputs["spec"]["receivers"]
        found = receiver["webhookConfigs"][0]["httpConfig"]
        name = made.one("proxy-ca").inputs["metadata"]["name"]
        assert found.pop("tlsConfig") == {"ca": {"configMap": {"name": name, "key": "ca.crt"}}}
        assert found == way


def test_exporter_of_gpus_is_read_where_the_platform_runs_it(tmp_path: Path) -> None:
    """Prometheus reads the exporter of GPUs in the operator's namespace and keeps the exporter's
    names of pods, but only if the platform runs this exporter.
    """
    result = deploy("dev", tmp_path, {"monitoring": "existing"})
    gpus = result.one("monitoring-gpus").inputs["spec"]
    assert gpus["namespaceSelector"] == {"matchNames": ["gpu-operator"]}
    assert gpus["podMetricsEndpoints"] == [{"port": "metrics", "honorLabels": True}]
    without = {"monitoring": "existing", "gpuOperatorDcgmExporter": False}
    for made in (deploy("dev", tmp_path, without), deploy("sandbox", tmp_path, {**without})):
        assert "monitoring-gpus" not in [resource.name for resource in made.resources]

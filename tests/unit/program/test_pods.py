"""The pods that the program makes: their rights, where they run, and what they request."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.kube.files.task_pod import TaskPod, pod_manifest
from infra.workloads import WORKLOADS
from tests.unit.certificates import AUTHORITY
from tests.unit.program.parts import pods_of_run, templates, training_template, variables
from tests.unit.stacks import Deployment, deploy

TASK = TaskPod("any", "owner", "ml", "image:1", ("true",), "claim", deadline_seconds=1)


def test_every_pod_gets_the_proxy_and_runs_without_privileges(
    deployment: tuple[str, Deployment],
) -> None:
    _, result = deployment
    assert len(templates(result)) == 2
    for template in templates(result):
        pod, (container,) = template["spec"], template["spec"]["containers"]
        assert container["envFrom"] == [
            {"configMapRef": {"name": "proxy-config"}},
            {"secretRef": {"name": "proxy-config"}},
        ]
        assert pod["securityContext"]["runAsUser"] == 1000
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["enableServiceLinks"] is False
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["imagePullPolicy"] == "IfNotPresent"
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        assert container["image"] == result.outputs["image"]


def test_every_container_requests_cpu_and_memory(tmp_path: Path) -> None:
    """Every container, init containers too, requests CPU and memory. So no pod is of the class
    BestEffort, and a namespace with a quota of requests accepts all pods.
    """
    authority = tmp_path / "ca.crt"
    authority.write_text(AUTHORITY)
    result = deploy("dev", tmp_path, {"caBundle": str(authority)})
    assert len(templates(result)) == 2
    for template in templates(result):
        spec = template["spec"]
        assert len(spec["initContainers"]) == 1
        for container in (*spec["containers"], *spec["initContainers"]):
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}, container["name"]


def test_training_pods_request_cpu_and_memory_for_each_rank(tmp_path: Path) -> None:
    """A training pod requests CPU and memory for each of its ranks. Without requests it would be
    among the first to be evicted.
    """
    (container,) = training_template(deploy("dev", tmp_path))["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "3", "memory": "12Gi"}
    changes = {"cpuPerRank": "500m", "memoryPerRank": "8Gi"}
    (container,) = training_template(deploy("dev", tmp_path, changes))["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1500m", "memory": "24Gi"}


LIMITS = {"cpuLimitPerRank": "4", "memoryLimitPerRank": "16Gi"}


@pytest.mark.parametrize("topology", WORKLOADS)
def test_every_container_has_the_limits(topology: str, tmp_path: Path) -> None:
    """With limits in the settings, every container has them: those of the training and its init
    containers, of the data set, and of commands. So a namespace whose quota demands limits accepts
    all pods.
    """
    authority, text = tmp_path / "ca.crt", tmp_path / "text"
    authority.write_text(AUTHORITY)
    text.write_text("text\n")
    data = {"datasetFile": str(text), "datasetUrl": "", "datasetSha256": ""}
    shape = {"topology": topology, "pods": 1 if topology == "single-pod" else 2, "gpusPerPod": 2}
    changes = {**LIMITS, **data, **shape, "caBundle": str(authority), "k3sExisting": "adopt"}
    result = deploy("dev", tmp_path, {**changes, "gpus": 4})
    pods = pods_of_run(result)
    assert len(pods) == (3 if topology == "mpijob" else 2), "an MPIJob has a launcher too"
    for spec in pods:
        for container in (*spec["containers"], *spec["initContainers"]):
            limits = {**container["resources"]["limits"]}
            limits.pop("nvidia.com/gpu", None)
            assert limits == {"cpu": "8", "memory": "32Gi"}, container["name"]
    upload = json.loads(result.one("dataset-upload").inputs["stdin"])["placement"]
    command = yaml.safe_load(result.outputs["podPlacement"])
    for place in (upload, command):
        pod = pod_manifest(replace(TASK, placement=place, gpus=1), "any")
        (container,) = pod["spec"]["containers"]
        expected = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
        assert container["resources"]["limits"] == expected
        assert "resources" not in pod["spec"]


def test_without_limits_no_container_has_them(tmp_path: Path) -> None:
    """Without limits in the settings, containers have only the limit of GPUs."""
    result = deploy("dev", tmp_path)
    (container,) = training_template(result)["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "3"}
    assert "resources" not in yaml.safe_load(result.outputs["podPlacement"])


def test_container_that_copies_has_limits(tmp_path: Path) -> None:
    """The init container of a run with its own image has the same limits as the training's
    container, and asks for no more.
    """
    program = {"program": {"image": "registry.example/own:1", "command": ["python", "train.py"]}}
    spec = training_template(deploy("dev", tmp_path, {**LIMITS, **program}))["spec"]
    (first,) = spec["initContainers"]
    assert first["resources"]["limits"] == {"cpu": "12", "memory": "48Gi"}


def test_pods_beside_the_training_go_where_it_goes(tmp_path: Path) -> None:
    """The pods of the data set, of its upload and of commands get the training's node selector,
    tolerations and priority. The volume may be on those nodes only, and the cluster may have no
    others.
    """
    text = tmp_path / "text"
    text.write_text("text\n")
    changes = {
        "datasetFile": str(text),
        "datasetUrl": "",
        "datasetSha256": "",
        "nodeSelector": {"gpu": "a10"},
        "tolerations": [{"key": "team", "operator": "Exists"}],
        "priorityClass": "high",
    }
    result = deploy("dev", tmp_path, changes)
    job = result.one("dataset-job").inputs["spec"]["template"]["spec"]
    upload = json.loads(result.one("dataset-upload").inputs["stdin"])["placement"]
    sample = yaml.safe_load(result.outputs["podPlacement"])
    for place in (job, upload, sample):
        assert place["nodeSelector"] == {"gpu": "a10"}
        assert [t["key"] for t in place["tolerations"]] == ["nvidia.com/gpu", "team"]
        assert place["priorityClassName"] == "high"


def test_settings_of_pods_reach_the_pod(tmp_path: Path) -> None:
    """The settings for pods reach the training's pods, and a variable of the user replaces the
    program's.
    """
    template = training_template(
        deploy(
            "dev",
            tmp_path,
            {
                "podEnvironment": {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "ens5"},
                "nodeSelector": {"gpu": "a10"},
                "tolerations": [{"key": "team", "operator": "Equal", "value": "ml"}],
                "priorityClass": "high",
                "podAnnotations": {"example.org/a": "1"},
                "podLabels": {"team": "ml"},
            },
        )
    )
    spec, metadata = template["spec"], template["metadata"]
    assert variables(template)["NCCL_DEBUG"] == "INFO"
    values = [e["value"] for e in spec["containers"][0]["env"] if e["name"] == "NCCL_SOCKET_IFNAME"]
    assert values == ["ens5"]
    assert spec["nodeSelector"] == {"gpu": "a10"}
    assert {t["key"] for t in spec["tolerations"]} == {"nvidia.com/gpu", "team"}
    assert spec["priorityClassName"] == "high"
    assert metadata["annotations"]["example.org/a"] == "1"
    assert metadata["labels"]["team"] == "ml"


def test_dollar_signs_reach_the_program_unchanged(tmp_path: Path) -> None:
    """A variable of `podEnvironment`, and a word of the command of a pod such as that of
    `./disttrain sample`, keep their dollar signs. Kubernetes makes `$` of `$$`, and the value of a
    variable of `$(HOME)`, if they are not written so.
    """
    own, written = "^cost: $$5 $(HOME) $HOME$", "^cost: $$$$5 $$(HOME) $$HOME$$"
    template = training_template(deploy("dev", tmp_path, {"podEnvironment": {"PATTERN": own}}))
    assert variables(template)["PATTERN"] == written
    pod = pod_manifest(replace(TASK, command=("sample", own), environment={"A": own}), "p")
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["sample", written]
    assert container["env"] == [{"name": "A", "value": written}]


@pytest.mark.parametrize("own", [{"LOGNAME": "ada"}, {"USER": "ada"}, {"PYTHONUNBUFFERED": "x"}])
@pytest.mark.parametrize("image", ["", "registry.example/mine:1"])
def test_own_variables_are_set_once(own: dict[str, str], image: str, tmp_path: Path) -> None:
    """A variable of the user's own replaces the one that pods have by default. The API server
    refuses two variables of the same name in a JobSet, and in a change by server-side apply.
    """
    program = {"command": ["python", "train.py"], **({"image": image} if image else {})}
    changes = {"podUser": 1000680000, "podEnvironment": own, "program": program}
    usual = {"datasetFile": "", "preset": "shakespeare-char"}
    template = training_template(deploy("sandbox", tmp_path, {**changes, **usual}))
    names = [each["name"] for each in template["spec"]["containers"][0]["env"]]
    assert len(names) == len(set(names))
    assert variables(template).items() >= own.items()
    assert not {"LOGNAME", "USER"} <= set(names)  # getpass reads LOGNAME first


def test_pods_have_the_time_to_save_that_is_set(tmp_path: Path) -> None:
    """A training pod has `terminationGraceSeconds` to save after SIGTERM. With Kubernetes' own 30 s
    a large checkpoint would be lost at each stop, eviction and hand-over.
    """
    usual = training_template(deploy("dev", tmp_path))
    assert usual["spec"]["terminationGracePeriodSeconds"] == 120
    longer = deploy("multipod", tmp_path, {"terminationGraceSeconds": "900"})
    assert training_template(longer)["spec"]["terminationGracePeriodSeconds"] == 900


@pytest.mark.parametrize(
    ("wait", "seconds"), [({}, 240), ({"mirror_wait_seconds": 2**31}, 2**31 - 1)]
)
def test_pods_also_have_the_time_to_wait_for_their_mirror(
    wait: dict[str, int], seconds: int, tmp_path: Path
) -> None:
    """After the save, a pod waits for its mirror. The kubelet would kill it in the middle of the
    last copy if that time were not added to the time to save.
    """
    run = {"checkpoint": {"mirror": "s3://bucket/runs", **wait}}
    found = training_template(deploy("dev", tmp_path, {"run": run}))
    assert found["spec"]["terminationGracePeriodSeconds"] == seconds


def test_caches_are_on_the_disk_of_the_pod(deployment: tuple[str, Deployment]) -> None:
    """The home folder of every pod is on its own disk, also in an image of the user's own. Triton
    and torch.compile write below it; on the volume, all ranks would wait for each other's locks.
    """
    _, result = deployment
    assert len(templates(result)) == 2
    for template in templates(result):
        assert variables(template)["HOME"] == "/tmp"
        (container,) = template["spec"]["containers"]
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert not [mount for mount in mounts if mount in ("/", "/tmp") or "/tmp/" in mount]


def test_shared_memory_is_a_memory_volume(deployment: tuple[str, Deployment]) -> None:
    template = training_template(deployment[1])
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    mounts = {m["mountPath"]: m for m in template["spec"]["containers"][0]["volumeMounts"]}
    shm = volumes[mounts["/dev/shm"]["name"]]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}


@pytest.mark.parametrize(
    ("stack", "nodes", "ranks", "gpus"),
    [
        ("dev", "1", "3", "3"),
        ("multipod", "3", "1", "1"),
        ("sandbox", "1", "2", None),
        ("sandbox-multipod", "3", "1", None),
    ],
)
def test_topology_goes_to_the_pods_as_torchruns_variables(
    tmp_path: Path, stack: str, nodes: str, ranks: str, gpus: str | None
) -> None:
    """The pods get the shape of the run as torchrun's variables, with their GPUs, and several pods
    can find each other by a Service.
    """
    result = deploy(stack, tmp_path)
    template = training_template(result)
    found = variables(template)
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == (nodes, ranks)
    assert (found["NCCL_IB_DISABLE"], found["NCCL_SOCKET_IFNAME"]) == ("1", "eth0")
    assert found["DISTTRAIN_TRANSPORTS"] == "socket"
    limits = template["spec"]["containers"][0].get("resources", {}).get("limits", {})
    assert limits.get("nvidia.com/gpu") == gpus
    if nodes == "3":
        assert found["PET_MASTER_ADDR"] == "train-multipod-0.train-mp-headless"
        assert found["GLOO_SOCKET_IFNAME"] == "eth0"
        service = result.one("training-service").inputs["spec"]
        assert service["publishNotReadyAddresses"] is True
        assert service["clusterIP"] == "None"
        labels = template["metadata"]["labels"].items()
        assert service["selector"].items() <= labels
        spec = result.one("training-stateful-set").inputs["spec"]
        assert spec["podManagementPolicy"] == "Parallel"
        assert spec["replicas"] == 3
        assert spec["selector"]["matchLabels"].items() <= labels
    assert result.outputs["worldSize"] == int(nodes) * int(ranks)


def scraped(template: dict[str, Any]) -> dict[str, str]:
    """Return the annotations by which Prometheus finds the pods."""
    annotations = template["metadata"]["annotations"]
    return {key: text for key, text in annotations.items() if key.startswith("prometheus.io/")}


def test_training_pods_offer_their_metrics_at_the_port(tmp_path: Path) -> None:
    """The training's pods offer metrics at `metricsPort`, and 0 switches that off. They declare no
    port, because on a pod in its node's network a declared port would keep other pods off the node.
    """
    template = training_template(deploy("dev", tmp_path, {"metricsPort": 9500}))
    assert variables(template)["DISTTRAIN_METRICS_PORT"] == "9500"
    assert scraped(template) == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9500",
        "prometheus.io/path": "/metrics",
    }
    assert "ports" not in template["spec"]["containers"][0]
    changes = {"metricsPort": 9500, "podAnnotations": {"prometheus.io/scrape": "false"}}
    template = training_template(deploy("dev", tmp_path, changes))
    assert scraped(template)["prometheus.io/scrape"] == "false"
    template = training_template(deploy("dev", tmp_path, {"metricsPort": 0}))
    assert variables(template)["DISTTRAIN_METRICS_PORT"] == "0"
    assert scraped(template) == {}

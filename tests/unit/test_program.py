"""The real program with the real stack files, against a recording engine."""

import ast
import base64
import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pulumi
import pytest
import yaml

from infra.labels import REVISION_LABEL
from infra.platform.facts import facts_from_text
from tests.unit.stacks import (
    PLATFORM_OF,
    PROJECT,
    STACKS,
    Deployment,
    RecordingMonitor,
    Registered,
    deploy,
    raw_settings,
    run_with,
    without_secrets,
)
from trainer.launch.exit_codes import RETRY_VARIABLE, ExitCode

COMPONENTS = {
    "disttrain:infra:Owner": ("infra.platform.owner", "Owner"),
    "disttrain:infra:ClusterAccess": ("infra.platform.access", "ClusterAccess"),
    "disttrain:infra:HostGuard": ("infra.platform.host_guard", "HostGuard"),
    "disttrain:infra:HostTrust": ("infra.platform.host", "HostTrust"),
    "disttrain:infra:Doctor": ("infra.node.doctor", "Doctor"),
    "disttrain:infra:Agent": ("infra.platform.agents", "Agent"),
    "disttrain:infra:Cluster": ("infra.platform.cluster", "Cluster"),
    "disttrain:infra:GpuOperator": ("infra.platform.gpu_operator", "GpuOperator"),
    "disttrain:infra:TrainerImage": ("infra.platform.trainer_image", "TrainerImage"),
    "disttrain:infra:SameMachine": ("infra.platform.same_machine", "SameMachine"),
    "disttrain:infra:Namespace": ("infra.platform.namespace", "Namespace"),
    "disttrain:infra:DataFolder": ("infra.platform.data_folder", "DataFolder"),
    "disttrain:infra:DataVolume": ("infra.platform.data_volume", "DataVolume"),
    "disttrain:infra:ProxyConfig": ("infra.platform.proxy", "ProxyConfig"),
    "disttrain:infra:Monitoring": ("infra.platform.monitoring", "Monitoring"),
    "disttrain:infra:Viewers": ("infra.platform.viewers", "Viewers"),
    "disttrain:infra:LostNodes": ("infra.platform.lost_nodes", "LostNodes"),
    "disttrain:infra:NodeHealth": ("infra.platform.node_health", "NodeHealth"),
    "disttrain:infra:NamespaceGuard": ("infra.platform.namespace_guard", "NamespaceGuard"),
    "disttrain:infra:TaskPods": ("infra.platform.guards", "TaskPods"),
    "disttrain:infra:DestroyGuard": ("infra.platform.guards", "DestroyGuard"),
    "disttrain:infra:DatasetJob": ("infra.run.dataset", "DatasetJob"),
    "disttrain:infra:RunConfigMap": ("infra.run.config_maps", "RunConfigMap"),
    "disttrain:infra:RunKey": ("infra.run.run_key", "RunKey"),
    "disttrain:infra:Workload": ("infra.run.workload", "Workload"),
    "disttrain:infra:EarlyOutputs": ("infra.outputs", "EarlyOutputs"),
    "disttrain:infra:Verification": ("infra.run.verification", "Verification"),
}
COMMON = {
    "pulumi:providers:kubernetes cluster-provider",
    "command:local:Command owner-identity",
    "command:local:Command task-pods-leftovers",
}
PLATFORM = COMMON | {
    "command:local:Command image-ensure",
    "command:local:Command namespace-look",
    "kubernetes:core/v1:Namespace namespace-namespace",
    "command:local:Command data-root-folder",
    "command:local:Command data-look",
    "kubernetes:core/v1:PersistentVolume data-volume",
    "kubernetes:core/v1:PersistentVolumeClaim data-claim",
    "kubernetes:core/v1:ConfigMap proxy-config-map",
    "kubernetes:core/v1:Secret proxy-secret",
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole viewers-role",
    "command:local:Command destroy-guard-look",
}
RUN = {
    "kubernetes:core/v1:ConfigMap dataset-settings-config-map",
    "kubernetes:batch/v1:Job dataset-job",
    "kubernetes:core/v1:ConfigMap run-config-map",
    "command:local:Command run-key-random",
    "kubernetes:core/v1:Secret run-key-secret",
    "command:local:Command training-hand-over",
    "command:local:Command training-await",
}
ON_ANOTHER = COMMON | RUN | {"command:local:Command cluster-generation"}
ON_K3S = {
    "kubernetes:core/v1:ServiceAccount node-health-account",
    "kubernetes:rbac.authorization.k8s.io/v1:Role node-health-role",
    "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding node-health-role-binding",
    "kubernetes:core/v1:ConfigMap node-health-program",
    "kubernetes:apps/v1:DaemonSet node-health-daemon-set",
    "command:local:Command doctor-host",
    "command:local:Command host-guard-look",
    "command:local:Command cluster-generation",
    "command:local:Command cluster-k3s",
    "command:local:Command cluster-kubeconfig",
    "kubernetes:core/v1:Namespace gpu-operator-namespace",
    "kubernetes:helm.sh/v3:Release gpu-operator-release",
    "command:local:Command gpu-operator-guard",
    "command:local:Command gpu-operator-cleanup",
    "command:local:Command gpu-operator-watch",
    "command:local:Command gpu-operator-await",
    "command:local:Command gpu-operator-namespace-guard-look",
}
IN_SANDBOX = {"command:local:Command dataset-upload"}
ON_EXISTING = {"command:local:Command same-machine-look"}
SINGLE = {"kubernetes:batch/v1:Job training-job"}
MULTI = {
    "kubernetes:core/v1:Service training-service",
    "kubernetes:apps/v1:StatefulSet training-stateful-set",
}
EXPECTED = {
    "dev": PLATFORM | RUN | ON_K3S | SINGLE,
    "multipod": ON_ANOTHER | MULTI,
    "sandbox": PLATFORM | RUN | IN_SANDBOX | ON_EXISTING | SINGLE,
    "sandbox-multipod": ON_ANOTHER | IN_SANDBOX | MULTI,
}
OWNERS = ("dev", "sandbox")
MULTI_POD = ("multipod", "sandbox-multipod")


@pytest.fixture(scope="module", params=STACKS)
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    result = deploy(request.param, tmp_path_factory.mktemp(request.param))
    return request.param, result


def templates(deployment: Deployment) -> list[dict[str, Any]]:
    """Pod templates of all workloads."""
    kinds = ("kubernetes:batch/v1:Job", "kubernetes:apps/v1:StatefulSet")
    found = [resource for kind in kinds for resource in deployment.of_type(kind)]
    return [resource.inputs["spec"]["template"] for resource in found]


def training_template(deployment: Deployment) -> dict[str, Any]:
    (template,) = [
        template
        for template in templates(deployment)
        if template["metadata"]["labels"]["app.kubernetes.io/component"] == "training"
    ]
    return template


def variables(template: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e.get("value", "") for e in template["spec"]["containers"][0]["env"]}


def test_each_stack_registers_exactly_its_resources(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment
    found = [f"{r.type} {r.name}" for r in result.resources if r.type not in COMPONENTS]
    assert sorted(found) == sorted(EXPECTED[stack])


def test_components_have_our_tokens_and_children_their_names(
    deployment: tuple[str, Deployment],
) -> None:
    _, result = deployment
    components = {r.urn: r for r in result.resources if r.type in COMPONENTS}
    for resource in result.resources:
        if resource.type in COMPONENTS:
            assert resource.parent.endswith("pulumi:pulumi:Stack::disttrain-" + deployment[0])
        else:
            parent = components[resource.parent]
            assert resource.name.startswith(f"{parent.name}-"), (resource.name, parent.name)


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def test_components_register_the_outputs_they_are_annotated_with(
    deployment: tuple[str, Deployment],
) -> None:
    _, result = deployment
    for component in (r for r in result.resources if r.type in COMPONENTS):
        module, name = COMPONENTS[component.type]
        cls = getattr(importlib.import_module(module), name)
        annotated = {
            key
            for base in cls.__mro__
            if base.__module__.startswith("infra.")
            for key in base.__annotations__
        }
        assert annotated, name
        annotated = {camel_case(key) for key in annotated}
        assert set(result.component_outputs[component.urn]) == annotated, name
        assert None not in result.component_outputs[component.urn].values(), name


def test_kubernetes_resources_use_the_one_provider(deployment: tuple[str, Deployment]) -> None:
    _, result = deployment
    (provider,) = result.of_type("pulumi:providers:kubernetes")
    owner = PLATFORM_OF.get(deployment[0], deployment[0])
    assert provider.inputs["clusterIdentifier"].startswith(f"disttrain-{owner}-")
    for resource in result.resources:
        if resource.type.startswith("kubernetes:"):
            assert resource.request.provider.startswith(provider.urn), resource.name


def test_what_lies_in_our_k3s_goes_with_it(tmp_path: Path) -> None:
    """Otherwise `destroy` would ask a k3s that is gone already, and end with an error.

    The engine hands `deletedWith` down from a component to what is in it.
    """
    result = deploy("dev", tmp_path)
    install = result.one("cluster-k3s")
    for name in ("namespace", "data", "dataset", "training", "gpu-operator", "task-pods"):
        assert result.one(name).request.deletedWith == install.urn
    existing = deploy("sandbox", tmp_path)
    assert {r.request.deletedWith for r in existing.resources} == {""}


def test_what_lies_in_an_adopted_k3s_is_deleted_by_itself(tmp_path: Path) -> None:
    """Fault 3 of the review: `destroy` forgot the objects in a k3s that it does not remove."""
    result = deploy("dev", tmp_path, {"k3sExisting": "adopt"})
    assert {r.request.deletedWith for r in result.resources} == {""}


def test_guard_of_destroy_is_never_skipped_and_comes_first(tmp_path: Path) -> None:
    """Fault 2 of the review: the guard's delete was skipped because k3s went in the same destroy.

    The engine deletes in the reverse order of the dependencies, so the guard, which depends on
    everything else, is the first to go.
    """
    result = deploy("dev", tmp_path)
    guard = result.one("destroy-guard-look")
    assert guard.request.deletedWith == ""
    waited_for = everything_before(result, guard)
    others = {r.name for r in result.resources if r.type not in COMPONENTS} - {guard.name}
    assert others - {"training-await"} <= waited_for | {"training-await"}
    assert "training-await" in waited_for


def test_names_of_the_original_set_up_are_kept(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment

    def name(resource: str) -> str:
        return result.one(resource).inputs["metadata"]["name"]

    if stack in OWNERS:
        assert name("namespace-namespace") == "disttrain"
        usual = "disttrain-pvc"  # the sandbox has another folder, so it has another claim
        claim = name("data-claim")
        assert claim == usual if stack == "dev" else claim.startswith(f"{usual}-")
        assert name("proxy-config-map") == "proxy-config"
        assert name("dataset-job") == "download-tiny-shakespeare"
    if "multi" in stack:
        assert name("training-stateful-set") == "train-multipod"
        assert name("training-service") == "train-mp-headless"
    else:
        assert name("training-job") == "train-singlepod"


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
    """Never BestEffort, and a namespace with a quota of requests takes all of our pods."""
    authority = tmp_path / "ca.crt"
    authority.write_text("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
    result = deploy("dev", tmp_path, {"caBundle": str(authority)})
    assert len(templates(result)) == 2
    for template in templates(result):
        spec = template["spec"]
        assert len(spec["initContainers"]) == 1
        for container in (*spec["containers"], *spec["initContainers"]):
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}, container["name"]


def test_pods_beside_the_training_go_where_it_goes(tmp_path: Path) -> None:
    """The volume may be on those nodes alone, and the cluster may have no others.

    The pod of `./disttrain sample` had none of these fields.
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


def test_image_is_built_and_imported_under_the_name_that_pods_ask_for(
    deployment: tuple[str, Deployment],
) -> None:
    stack, result = deployment
    if stack not in OWNERS:
        assert result.outputs["image"]
        return
    command = result.one("image-ensure").inputs
    assert command["environment"]["TRAINER_IMAGE"] == result.outputs["image"]
    assert f"--reference {result.outputs['image']}" in command["delete"]
    assert result.outputs["imageDigest"] == "sha256:0123"


def test_image_is_built_where_the_settings_say(tmp_path: Path) -> None:
    for place in ("here", "node"):
        result = deploy("dev", tmp_path, {**SECRETS, "imageBuildOn": place}, SECRET_KEYS)
        assert f"--build-on {place}" in result.one("image-ensure").inputs["create"]


def test_image_command_runs_again_when_the_image_was_missed(tmp_path: Path) -> None:
    def inputs(request: str) -> dict[str, Any]:
        with patch("tests.unit.stacks.IMPORT_REQUEST", request):
            return deploy("dev", tmp_path).one("image-ensure").inputs

    assert inputs("1") == inputs("1")
    assert inputs("1") != inputs("2")
    assert inputs("2")["environment"]["IMAGE_IMPORT_REQUEST"] == "2"


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


def test_volume_and_claim_name_each_other(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment
    if stack not in OWNERS:
        return
    volume, claim = result.one("data-volume").inputs, result.one("data-claim").inputs
    assert claim["spec"]["selector"]["matchLabels"].items() <= volume["metadata"]["labels"].items()
    assert "disttrain.dev/owner" in volume["metadata"]["labels"]
    reference = volume["spec"]["claimRef"]
    assert reference["name"] == claim["metadata"]["name"]
    assert reference["namespace"] == claim["metadata"]["namespace"]
    assert volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"] == ""
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["spec"]["hostPath"]["path"] == result.outputs["hostDataPath"]


def test_training_is_not_awaited_by_the_provider_and_the_data_set_is(
    deployment: tuple[str, Deployment],
) -> None:
    stack, result = deployment
    workload = "training-stateful-set" if "multi" in stack else "training-job"
    assert result.one(workload).inputs["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    dataset = result.one("dataset-job").inputs["metadata"]["annotations"]
    assert dataset["pulumi.com/replaceUnready"] == "true"
    assert "pulumi.com/skipAwait" not in dataset
    uid = result.one(workload).name
    assert json.loads(result.one("training-await").program)["uid"] == f"uid-of-{uid}"


def everything_before(result: Deployment, resource: Registered) -> set[str]:
    """Names of all resources that this one waits for, directly or not."""
    by_urn = {r.urn: r for r in result.resources}
    names: set[str] = set()
    todo = list(resource.request.dependencies)
    while todo:
        found = by_urn[todo.pop()]
        if found.name not in names:
            names.add(found.name)
            todo += found.request.dependencies
    return names


def test_nothing_starts_before_what_it_needs(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment
    workload = "training-stateful-set" if "multi" in stack else "training-job"
    before = everything_before(result, result.one(workload))
    needed = {"dataset-job", "run-config-map", "training-hand-over"}
    if stack in OWNERS:
        needed |= {"proxy-config-map", "data-claim", "image-ensure"}
        assert "namespace-look" in everything_before(result, result.one("data-claim"))
    needed |= {"gpu-operator-await"} if stack == "dev" else set()
    needed |= {"dataset-upload"} if "sandbox" in stack else set()
    assert needed <= before
    assert "dataset-job" in everything_before(result, result.one("training-hand-over"))


def test_outputs_are_named_in_camel_case_and_complete(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment
    outputs = result.outputs
    assert outputs["namespace"] == "disttrain"
    assert outputs["topology"] == ("multi-pod" if "multi" in stack else "single-pod")
    assert outputs["runName"] == stack
    if stack in OWNERS:
        assert outputs["hostRunPath"] == f"{outputs['hostDataPath']}/runs/{stack}"
    assert outputs["runPath"] == f"/data/runs/{stack}"
    said = "not known yet" if "multi" in stack else "one pod writes to the volume"
    assert outputs["volumeProof"].startswith(said)  # the recording engine runs no wait
    assert outputs["queuePlace"] == "the run is in no queue of Kueue"
    assert "_" not in "".join(outputs)
    existing = str(result.one("cluster-provider").inputs["kubeconfig"])
    assert outputs["kubeconfig"] == existing


# --- one platform, two stacks ---


def keys(result: Deployment) -> set[tuple[str, str]]:
    """Kind and name of every Kubernetes object, and of the Helm release."""
    found: set[tuple[str, str]] = set()
    for resource in result.resources:
        if resource.type.startswith("kubernetes:"):
            name = resource.inputs.get("name") or resource.inputs["metadata"]["name"]
            found.add((resource.type, name))
    return found


@pytest.mark.parametrize(("owner", "other"), [("dev", "multipod"), ("sandbox", "sandbox-multipod")])
def test_no_object_is_in_the_state_of_two_stacks(owner: str, other: str, tmp_path: Path) -> None:
    """Faults 1 and 4 of the review: both stacks owned k3s, the Helm release and the namespace.
    Fault 14: so only a provider before 4.29 worked, whose create takes over what exists."""
    assert keys(deploy(owner, tmp_path)) & keys(deploy(other, tmp_path)) == set()


def test_key_of_a_run_is_a_secret_that_only_its_pods_get(tmp_path: Path) -> None:
    result = deploy("multipod", tmp_path)
    name = result.one("run-key-secret").inputs["metadata"]["name"]
    environment = training_template(result)["spec"]["containers"][0]["env"]
    (key,) = (entry for entry in environment if entry["name"] == "DISTTRAIN_RUN_KEY")
    assert key["valueFrom"]["secretKeyRef"] == {"name": name, "key": "key"}
    assert without_secrets(result.one("run-key-secret").wire)["data"] == "[secret]"
    assert "stdout" in result.one("run-key-random").request.additionalSecretOutputs


def test_run_on_another_platform_needs_nothing_of_the_host(tmp_path: Path) -> None:
    result = deploy("multipod", tmp_path)
    assert result.of_type("command:remote:Command") == []
    for command in result.of_type("command:local:Command"):
        words = command.inputs["create"]
        assert words.startswith(".venv/bin/python -"), words
        assert not any(word in words for word in ("ssh", "ctr", "infra.image"))


@pytest.mark.parametrize("outputs", [None, {}], ids=["no such stack", "not up"])
def test_platform_that_is_not_up_is_said_with_both_ways_out(outputs: dict[str, Any] | None) -> None:
    """tests/node/test_platform.py has it from the real engine."""
    monitor = RecordingMonitor(outputs)
    with pytest.raises(pulumi.RunError) as failure:
        run_with(monitor, "multipod", raw_settings("multipod"))
    assert "platform: 'dev' cannot be used: no stack of this name is up" in str(failure.value)
    assert "pulumi up --stack dev" in str(failure.value)
    assert 'pulumi config set platform ""' in str(failure.value)
    assert [r for r in monitor.deployment.resources if r.type.startswith("command:")] == []


def test_platform_that_is_the_stack_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pulumi.RunError, match="is this stack itself"):
        deploy("dev", tmp_path, {"platform": "dev"})


def test_cluster_of_another_machine_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """Fault 9 of the review: with `host: local` and a cluster elsewhere, the data folder and the
    image were made here and the pods failed there. tests/kube/test_same_machine.py has the look."""
    result = deploy("sandbox", tmp_path)
    made = [r for r in result.resources if r.type not in COMPONENTS]
    look = {"owner-identity", "same-machine-look"}
    for resource in made:
        if resource.name not in {*look, "run-key-random"}:
            assert "same-machine-look" in everything_before(result, resource), resource.name


@pytest.mark.parametrize(
    ("text", "version"), [("{version: 1, stack: dev}", "1"), ({"stack": "dev"}, "unknown")]
)
def test_platform_of_another_version_is_brought_up_first(text: object, version: str) -> None:
    monitor = RecordingMonitor({"platform": text, "kubeconfig": "k"})
    with pytest.raises(pulumi.RunError, match=f"has version {version}, and this program reads"):
        run_with(monitor, "multipod", raw_settings("multipod"))


@pytest.mark.parametrize("stack", OWNERS)
def test_output_for_other_stacks_is_one_line_of_the_screen(stack: str, tmp_path: Path) -> None:
    """It was an object, which `pulumi up` shows on 20 lines; so does it show a text of JSON.

    tests/node/test_platform.py looks at the screen.
    """
    outputs = deploy(stack, tmp_path).outputs
    assert all(isinstance(value, str | int | float) for value in outputs.values())
    text = outputs["platform"]
    assert "\n" not in text
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(text)
    facts, generation = facts_from_text(text)
    assert facts.to_text(generation) == text


def test_setting_of_the_platform_is_refused_on_a_run_stack(tmp_path: Path) -> None:
    with pytest.raises(pulumi.RunError) as failure:
        deploy("multipod", tmp_path, {"k3sVersion": "v1.30.0+k3s1"})
    assert "k3sVersion" in str(failure.value)
    assert "pulumi config set --stack dev k3sVersion" in str(failure.value)


def test_stack_without_a_run_makes_the_platform_alone(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path, {"topology": "none"})
    found = {f"{r.type} {r.name}" for r in result.resources if r.type not in COMPONENTS}
    assert found == PLATFORM | ON_K3S
    assert "runName" not in result.outputs


def test_changed_code_is_delivered_by_the_platforms_stack_first(tmp_path: Path) -> None:
    outputs = dict(deploy("dev", tmp_path).outputs)
    facts, generation = facts_from_text(outputs["platform"])
    old = replace(facts.image, reference="localhost/disttrain/trainer:old-old")
    outputs["platform"] = replace(facts, image=old).to_text(generation)
    monitor = RecordingMonitor(outputs)
    with pytest.raises(pulumi.RunError, match="pulumi up --stack dev"):
        run_with(monitor, "multipod", raw_settings("multipod"))


def test_second_run_of_a_topology_has_names_of_its_own(tmp_path: Path) -> None:
    first = keys(deploy("multipod", tmp_path))
    second = deploy("multipod", tmp_path, {"instance": "b"})
    names = {name for _, name in keys(second)}
    assert {"train-multipod-b", "train-mp-headless-b"} <= names
    assert {name for _, name in first} & names <= {
        name for name in names if name.startswith(("run-", "dataset-"))
    }
    environment = variables(training_template(second))
    assert environment["PET_MASTER_ADDR"] == "train-multipod-b-0.train-mp-headless-b"


# --- pods that fit a real cluster ---


def test_training_pods_request_cpu_and_memory_for_each_rank(tmp_path: Path) -> None:
    """Fault 16 of the review: without requests the pods were the first to be evicted."""
    (container,) = training_template(deploy("dev", tmp_path))["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "3", "memory": "12Gi"}
    changes = {"cpuPerRank": "500m", "memoryPerRank": "8Gi"}
    (container,) = training_template(deploy("dev", tmp_path, changes))["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1500m", "memory": "24Gi"}


def test_settings_of_pods_reach_the_pod(tmp_path: Path) -> None:
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


def test_training_pods_offer_their_metrics_at_the_port(tmp_path: Path) -> None:
    """Without a declared port, which on a pod in its node's network would keep it from others."""
    template = training_template(deploy("dev", tmp_path, {"metricsPort": 9500}))
    assert variables(template)["DISTTRAIN_METRICS_PORT"] == "9500"
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9500",
        "prometheus.io/path": "/metrics",
    }
    assert "ports" not in template["spec"]["containers"][0]
    changes = {"metricsPort": 9500, "podAnnotations": {"prometheus.io/scrape": "false"}}
    template = training_template(deploy("dev", tmp_path, changes))
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "false"
    template = training_template(deploy("dev", tmp_path, {"metricsPort": 0}))
    assert variables(template)["DISTTRAIN_METRICS_PORT"] == "0"
    assert "annotations" not in template["metadata"]


def test_monitoring_of_the_cluster_is_told_of_the_runs(tmp_path: Path) -> None:
    """After a look whether the cluster knows these kinds."""
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
    """And to no other one, whose namespace is not known."""
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
    """The operator's kinds are there before objects of them are made."""
    result = deploy("dev", tmp_path, {"monitoring": "install"})
    there = result.one("controller-kube-prometheus-stack-open").urn
    assert there in result.one("monitoring-look").request.dependencies
    assert "leaves" not in json.loads(result.one("monitoring-look").inputs["stdin"])
    values = result.one("controller-kube-prometheus-stack-release").inputs["values"]
    spec = values["prometheus"]["prometheusSpec"]
    assert spec["podMonitorSelectorNilUsesHelmValues"] is False
    assert spec["ruleSelectorNilUsesHelmValues"] is False


def test_prometheus_numbers_get_a_claim_where_it_is_set(tmp_path: Path) -> None:
    """The cluster is asked for its class before anything of Prometheus is made."""
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
    """Its address stands in no object but the Secret."""
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
    """Behind a corporate proxy nobody would be told otherwise; past it where it need not be."""
    authority = tmp_path / "authority.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n")
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
    """Of the GPU Operator's namespace, and with the pods' names that the exporter gives."""
    result = deploy("dev", tmp_path, {"monitoring": "existing"})
    gpus = result.one("monitoring-gpus").inputs["spec"]
    assert gpus["namespaceSelector"] == {"matchNames": ["gpu-operator"]}
    assert gpus["podMetricsEndpoints"] == [{"port": "metrics", "honorLabels": True}]
    without = {"monitoring": "existing", "gpuOperatorDcgmExporter": False}
    for made in (deploy("dev", tmp_path, without), deploy("sandbox", tmp_path, {**without})):
        assert "monitoring-gpus" not in [resource.name for resource in made.resources]


def test_secret_variables_reach_the_pod_by_a_secret(tmp_path: Path) -> None:
    changes = {"podSecrets": {"AWS_SECRET_ACCESS_KEY": "hunter2"}}
    result = deploy("sandbox", tmp_path, changes, ["podSecrets"])
    secret = result.one("pod-secrets-secret")
    assert secret.inputs["data"] == {"AWS_SECRET_ACCESS_KEY": "aHVudGVyMg=="}
    (container,) = training_template(result)["spec"]["containers"]
    name = secret.inputs["metadata"]["name"]
    assert {"secretRef": {"name": name}} in container["envFrom"]
    for resource in result.resources:
        assert "aHVudGVyMg==" not in str(without_secrets(resource.wire))
        assert "hunter2" not in str(resource.wire)


def test_secret_variables_in_plain_text_are_refused_unseen(tmp_path: Path) -> None:
    for variables in ({"AWS_SECRET_ACCESS_KEY": "hunter2"}, {"RANK": "hunter2"}):
        with pytest.raises(pulumi.RunError, match="config set --secret --path") as failure:
            deploy("sandbox", tmp_path, {"podSecrets": variables})
        assert "hunter2" not in str(failure.value)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("podEnvironment", {"RANK": "0"}, "the entrypoint sets it"),
        ("podEnvironment", {"PET_NNODES": "2"}, "entrypoint set the variables that begin so"),
        ("podEnvironment", {"HTTP_PROXY": "http://x"}, "Use httpProxy, httpsProxy and noProxy"),
        ("podEnvironment", {"9x": "1"}, "is not the name of a variable"),
        ("podEnvironment", {"A": {"b": 1}}, "not a single text"),
        ("podEnvironment", {"JOB_COMPLETION_INDEX": "0"}, "the pods tell their ranks by it"),
        ("podEnvironment", {"LOCAL_WORLD_SIZE": "1"}, "the entrypoint sets it"),
        ("podEnvironment", {"CUDA_VISIBLE_DEVICES": "0"}, "its local rank's number"),
        ("podEnvironment", {"NVIDIA_VISIBLE_DEVICES": "all"}, "the GPUs that the pod was given"),
        ("podEnvironment", {"PATH": "/opt"}, "the image's programs are found by it"),
        ("podEnvironment", {"ALL_PROXY": "http://x"}, "Use httpProxy, httpsProxy and noProxy"),
        ("podEnvironment", {"SSL_CERT_FILE": "/x"}, "Use caBundle"),
        ("podLabels", {"app.kubernetes.io/name": "x"}, "finds its pods by the labels"),
        ("cpuPerRank", "half", "not auto or an amount"),
        ("memoryPerRank", "8 GB", "not auto or an amount"),
        ("podLabels", {"team": "a b"}, "no such value of a label"),
        ("podLabels", {"-team": "a"}, "takes no key '-team'"),
        ("nodeSelector", {"gpu/model/a": "a10"}, "takes no key"),
        ("nodeSelector", {"gpu": "a10,h100"}, "no such value of a label"),
        ("podAnnotations", {"a b": "any text"}, "takes no key 'a b'"),
        ("tolerations", ["x"], "it is not an object"),
        ("tolerations", [{"keys": "x"}], "a toleration has no key 'keys'"),
        ("tolerations", [{"value": "x"}], "without a key the operator must be Exists"),
        ("tolerations", [{"key": "a", "operator": "In"}], "neither Equal nor Exists"),
        ("tolerations", [{"key": "a", "operator": "Exists", "value": "b"}], "takes no value"),
        ("tolerations", [{"key": "a", "value": 1}], "put numbers in quotation marks"),
        ("tolerations", [{"key": "a", "value": "b", "effect": "Never"}], "is none of NoSchedule"),
        (
            "tolerations",
            [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
            "goes with the effect NoExecute",
        ),
        ("networkOptions", {"interface": "ens5"}, "has no options"),
        ("extensions", ["no.such.module"], "cannot be imported"),
        ("whenBusy", "kill", "Set replace, wait or refuse"),
        ("verify", "always", "Set never, before or after"),
    ],
)
def test_setting_that_would_break_the_run_is_refused(
    key: str, value: object, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(pulumi.RunError) as failure:
        deploy("dev", tmp_path, {key: value})
    assert key in str(failure.value)
    assert reason in str(failure.value)


def test_indexed_job_gives_each_pod_an_index_and_a_name(tmp_path: Path) -> None:
    made = deploy("sandbox-multipod", tmp_path, {"topology": "indexed-job", "pods": 4})
    spec = made.one("training-job").inputs["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    service = made.one("training-service").inputs["metadata"]["name"]
    pod = spec["template"]["spec"]
    assert (pod["subdomain"], pod["restartPolicy"]) == (service, "Never")
    variables = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    assert variables["PET_MASTER_ADDR"] == f"train-indexed-0.{service}"
    assert not made.of_type("kubernetes:apps/v1:StatefulSet")


def test_jobset_restarts_all_pods_and_fails_on_a_fatal_exit(tmp_path: Path) -> None:
    """The Job replaces no failed pod by itself, and a fatal exit code has a rule of its own."""
    made = deploy("sandbox-multipod", tmp_path, {"topology": "jobset", "pods": 4})
    spec = made.one("training-job-set").inputs["spec"]
    (jobs,) = spec["replicatedJobs"]
    job = jobs["template"]["spec"]
    assert (jobs["replicas"], job["completionMode"], job["backoffLimit"]) == (1, "Indexed", 0)
    assert (job["completions"], job["parallelism"]) == (4, 4)
    (rule,) = spec["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    fails = [rule for rule in job["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert [rule["onExitCodes"]["values"] for rule in fails] == [[ExitCode.FATAL]]
    # An evicted pod is the JobSet's matter: the Job would wait longer for each new pod.
    evicted = [rule for rule in job["podFailurePolicy"]["rules"] if "onPodConditions" in rule]
    assert [rule["action"] for rule in evicted] == ["Count"]
    assert spec["failurePolicy"]["restartStrategy"] == "BlockingRecreate"
    pod = job["template"]["spec"]
    variables = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    service = spec["network"]["subdomain"]
    assert variables["PET_MASTER_ADDR"] == f"train-jobset-{jobs['name']}-0-0.{service}"
    look = json.loads(made.one("training-look").program)
    assert look["group_version"] == "jobset.x-k8s.io/v1alpha2"
    assert look["setting"] == "topology: 'jobset'"
    assert "the cluster serves no" in look["otherwise"]


def test_trainjob_leaves_the_pods_to_its_runtime(tmp_path: Path) -> None:
    """Trainer adds variables of its own only where the runtime names a framework, and makes a
    JobSet that is gone anew, so nothing may remove one after some time."""
    made = deploy("sandbox-multipod", tmp_path, {"topology": "trainjob", "pods": 4})
    runtime = made.one("training-training-runtime").inputs["spec"]
    spec = made.one("training-train-job").inputs["spec"]
    assert spec == {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "TrainingRuntime",
            "name": "train-trainjob",
        }
    }
    assert runtime["mlPolicy"] == {"numNodes": 4}
    jobset = runtime["template"]["spec"]
    (jobs,) = jobset["replicatedJobs"]
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert (jobs["name"], jobs["template"]["metadata"]["labels"]) == ("node", labels)
    assert "ttlSecondsAfterFinished" not in jobset
    job = jobs["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    found = job["podFailurePolicy"]["rules"]
    rules = [rule["onExitCodes"] for rule in found if "onExitCodes" in rule]
    assert {rule["containerName"] for rule in rules} == {container["name"]} == {"node"}
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert variables["PET_MASTER_ADDR"] == "train-trainjob-node-0-0.train-trainjob"


def test_pytorchjob_has_workers_alone_with_ranks_of_ours(tmp_path: Path) -> None:
    """A master would bring an init container, whose image has to be pulled, into every worker."""
    changes = {"topology": "pytorchjob", "pods": 4, "processesPerPod": 2}
    made = deploy("sandbox-multipod", tmp_path, changes)
    spec = made.one("training-pytorch-job").inputs["spec"]
    assert spec["nprocPerNode"] == "2"
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running"}
    ((role, workers),) = spec["pytorchReplicaSpecs"].items()
    assert (role, workers["replicas"], workers["restartPolicy"]) == ("Worker", 4, "ExitCode")
    (container,) = workers["template"]["spec"]["containers"]
    assert container["name"] == "pytorch"
    variables = {entry["name"]: entry for entry in container["env"]}
    index = variables["JOB_COMPLETION_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.labels['training.kubeflow.org/replica-index']"
    assert variables[RETRY_VARIABLE]["value"]
    service = made.one("training-service").inputs
    assert service["metadata"]["name"] == variables["PET_MASTER_ADDR"]["value"]
    assert service["spec"]["publishNotReadyAddresses"] is True
    labels = workers["template"]["metadata"]["labels"]
    selector = dict(service["spec"]["selector"])
    assert selector.pop("training.kubeflow.org/replica-index") == "0"
    assert selector.items() <= labels.items()


def test_mpijob_has_a_launcher_that_is_node_0(tmp_path: Path) -> None:
    """Its pods differ in nothing but the index that the operator writes into their labels."""
    changes = {"topology": "mpijob", "pods": 4, "processesPerPod": 2}
    made = deploy("sandbox-multipod", tmp_path, changes)
    spec = made.one("training-mpi-job").inputs["spec"]
    assert (spec["runLauncherAsWorker"], spec["slotsPerWorker"]) == (True, 2)
    assert spec["launcherCreationPolicy"] == "AtStartup"
    assert spec["runPolicy"] == {"backoffLimit": 6, "cleanPodPolicy": "Running"}
    launcher, workers = (spec["mpiReplicaSpecs"][role] for role in ("Launcher", "Worker"))
    assert (launcher["replicas"], launcher["restartPolicy"]) == (1, "Never")
    assert (workers["replicas"], workers["restartPolicy"]) == (3, "OnFailure")
    assert launcher["template"] == workers["template"]
    assert "restartPolicy" not in launcher["template"]["spec"]
    (container,) = launcher["template"]["spec"]["containers"]
    variables = {entry["name"]: entry for entry in container["env"]}
    index = variables["JOB_COMPLETION_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.labels['training.kubeflow.org/replica-index']"
    assert variables["PET_MASTER_ADDR"]["value"] == "train-mpijob-launcher.train-mpijob"
    assert variables["PET_NNODES"]["value"] == "4"


def test_mpijob_of_one_pod_has_no_workers(tmp_path: Path) -> None:
    """The operator refuses an MPIJob with none of them."""
    made = deploy("sandbox", tmp_path, {"topology": "mpijob", "pods": 1})
    roles = made.one("training-mpi-job").inputs["spec"]["mpiReplicaSpecs"]
    assert list(roles) == ["Launcher"]


def test_retries_of_a_launcher_make_another_workload(tmp_path: Path) -> None:
    """The operator would not tell them to a launcher that is there already."""

    def made(**options: int) -> dict[str, Any]:
        given = {"topology": "mpijob", "topologyOptions": options}
        return deploy("sandbox-multipod", tmp_path, given).one("training-mpi-job").inputs

    usual, never = made(), made(launcherRetries=0)
    assert never["spec"]["runPolicy"]["backoffLimit"] == 0
    revisions = {item["metadata"]["labels"][REVISION_LABEL] for item in (usual, never)}
    assert len(revisions) == 2
    with pytest.raises(pulumi.RunError, match=r"launcherRetries: -1 cannot be used"):
        made(launcherRetries=-1)


def test_volcano_starts_all_pods_or_none(tmp_path: Path) -> None:
    """Every field that Volcano's webhook would fill in is set: it refuses an update without it."""
    changes = {"topology": "volcano", "pods": 4, "processesPerPod": 2, "priorityClass": "high"}
    made = deploy("sandbox-multipod", tmp_path, changes)
    spec = made.one("training-volcano-job").inputs["spec"]
    assert (spec["schedulerName"], spec["queue"]) == ("volcano", "default")
    assert spec["priorityClassName"] == "high"
    assert (spec["minAvailable"], spec["maxRetry"]) == (4, 401)
    (task,) = spec["tasks"]
    template = task.pop("template")
    assert task == {"name": "node", "replicas": 4, "minAvailable": 4, "maxRetry": 401}
    fatal, lost = spec["policies"]
    assert fatal == {"exitCode": 78, "action": "TerminateJob"}  # before the one for all failures
    assert lost == {"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}
    assert template["spec"]["restartPolicy"] == "Never"
    (container,) = template["spec"]["containers"]
    variables = {entry["name"]: entry for entry in container["env"]}
    index = variables["JOB_COMPLETION_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.labels['volcano.sh/task-index']"
    service = made.one("training-service").inputs
    assert service["metadata"]["name"] == variables["PET_MASTER_ADDR"]["value"]
    selector = service["spec"]["selector"]
    assert selector.pop("volcano.sh/task-index") == "0"
    assert selector.items() <= template["metadata"]["labels"].items()


def test_queue_of_volcano_is_looked_for_and_makes_another_workload(tmp_path: Path) -> None:
    """Volcano lets nobody move a Job to another queue."""

    def made(**options: object) -> Deployment:
        given = {"topology": "volcano", "topologyOptions": options}
        return deploy("sandbox-multipod", tmp_path, given)

    usual, team = made(), made(queue="team", restarts=40)
    jobs = [each.one("training-volcano-job").inputs for each in (usual, team)]
    assert [item["spec"]["queue"] for item in jobs] == ["default", "team"]
    assert jobs[1]["spec"]["maxRetry"] == 41
    assert len({item["metadata"]["labels"][REVISION_LABEL] for item in jobs}) == 2
    assert json.loads(team.one("training-queue").inputs["stdin"])["volcano_queue"] == "team"
    names = [resource.name for resource in team.resources]
    order = [names.index(f"training-{step}") for step in ("look", "queue", "hand-over")]
    assert order == sorted(order)
    for name, value in (("restarts", -1), ("queue", "")):
        with pytest.raises(pulumi.RunError, match=f"{name}: {value!r} cannot be used"):
            made(**{name: value})


def test_preview_leaves_a_job_of_volcano_as_its_webhook_wants_it(tmp_path: Path) -> None:
    """The provider tries the new Job out on the old one, and the webhook refuses such a change.

    The preview shows the label of the revision instead, as a mere update: for a replacement the
    engine would take the new Job whole, whatever is to be ignored.
    """

    def options(dry_run: bool, topology: str, name: str) -> tuple[list[str], list[str]]:
        with patch("pulumi.runtime.is_dry_run", lambda: dry_run):
            request = deploy("sandbox-multipod", tmp_path, {"topology": topology}).one(name).request
        return list(request.ignoreChanges), list(request.replaceOnChanges)

    changes = ["metadata.labels", "spec"]
    assert options(True, "volcano", "training-volcano-job") == (["spec"], [])
    assert options(False, "volcano", "training-volcano-job") == ([], changes)
    assert options(True, "volcano", "training-service") == ([], [])
    ignored, replaced = options(True, "jobset", "training-job-set")
    assert (ignored, replaced != []) == ([], True)


def test_leader_worker_set_has_one_group_of_all_pods(tmp_path: Path) -> None:
    """A lost pod is started again alone, and nothing waits for a leader that is not ready yet.

    Every field that its webhook would fill in is set.
    """
    changes = {"topology": "lws", "pods": 4, "processesPerPod": 2, "instance": "b"}
    made = deploy("sandbox-multipod", tmp_path, changes)
    workload = made.one("training-leader-worker-set").inputs
    assert workload["metadata"]["name"] == "train-lws-b"
    spec = workload["spec"]
    group = spec.pop("leaderWorkerTemplate")
    assert spec == {
        "replicas": 1,
        "startupPolicy": "LeaderCreated",
        "networkConfig": {"subdomainPolicy": "Shared"},
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0, "partition": 0},
        },
    }
    assert group.keys() == {"size", "restartPolicy", "workerTemplate"}  # the leader's is the same
    assert (group["size"], group["restartPolicy"]) == (4, "None")
    (container,) = group["workerTemplate"]["spec"]["containers"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert variables["PET_MASTER_ADDR"] == "train-lws-b-0.train-lws-b"
    assert variables["PET_NNODES"] == "4"
    assert variables["DISTTRAIN_POD_STAYS"] == "1"
    assert "JOB_COMPLETION_INDEX" not in variables  # its pods stay, as the set never ends
    hand_over = json.loads(made.one("training-hand-over").inputs["stdin"])
    assert hand_over["suspend"] == {"spec": {"replicas": 0}}
    assert hand_over["resume"] == {"spec": {"replicas": 1}}
    replaced = made.one("training-leader-worker-set").request.replaceOnChanges
    assert list(replaced) == ["spec.leaderWorkerTemplate"]


def run_yaml(deployment: Deployment) -> dict[str, Any]:
    return yaml.safe_load(deployment.one("run-config-map").inputs["data"]["run.yaml"])


def test_verify_before_measures_before_the_first_step(tmp_path: Path) -> None:
    asked = deploy("sandbox", tmp_path, {"verify": "before"})
    assert run_yaml(asked)["train"]["smoke_test"] is True
    assert run_yaml(deploy("sandbox", tmp_path))["train"]["smoke_test"] is False
    overrides = {"verify": "before", "run": {"train": {"smoke_test": False}}}
    with pytest.raises(pulumi.RunError, match=r"run\.train\.smoke_test: false .* verify is before"):
        deploy("sandbox", tmp_path, overrides)


def test_verify_after_looks_once_the_ranks_have_stepped(tmp_path: Path) -> None:
    """The command is the last of the run, and only this choice has it."""
    made = deploy("sandbox-multipod", tmp_path, {"verify": "after"})
    command = made.one("verification-look")
    job = json.loads(command.program)
    assert "cli.verify.at_up verify create" in command.inputs["create"]
    assert job["place"]["workload"] == "train-multipod"
    assert job["place"]["world_size"] == 3
    assert job["uid"] == "uid-of-training-stateful-set"
    assert set(made.component_outputs[made.one("verification").urn]) == {"report"}
    for other in ("never", "before"):
        without = deploy("sandbox-multipod", tmp_path, {"verify": other})
        assert not without.of_type("disttrain:infra:Verification")


def test_a_changed_run_changes_the_training_and_not_the_data_set(tmp_path: Path) -> None:
    before = deploy("sandbox", tmp_path)
    after = deploy("sandbox", tmp_path, {"run": {"train": {"max_steps": 700}}})
    assert training_template(before) != training_template(after)
    assert before.one("dataset-job").inputs == after.one("dataset-job").inputs
    name = before.one("run-config-map").inputs["metadata"]["name"]
    assert after.one("run-config-map").inputs["metadata"]["name"] != name
    assert "max_steps: 700" in after.one("run-config-map").inputs["data"]["run.yaml"]


def revision(result: Deployment) -> str:
    return training_template(result)["metadata"]["labels"]["disttrain.dev/revision"]


def test_another_proxy_makes_other_pods_and_another_password_does_not(tmp_path: Path) -> None:
    def with_proxy(url: str) -> str:
        return revision(deploy("sandbox", tmp_path, {"httpProxy": url}, ["httpProxy"]))

    plain = revision(deploy("sandbox", tmp_path))
    first = with_proxy("http://user:one@proxy:3128")
    assert first != plain
    assert with_proxy("http://user:two@proxy:3128") == first
    assert with_proxy("http://user:one@other:3128") != first


# --- secrets and proxies ---

SECRETS = {
    "host": "ssh",
    "sshHost": "10.1.2.3",
    "sshUser": "admin",
    "sshHostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample",
    "sshPrivateKey": "private-key-hunter1",
    "sudoPassword": "sudo-hunter2",
    "httpProxy": "http://me:proxy-hunter3@proxy.corp.example:3128",
    "httpsProxy": "http://me:proxy-hunter3@proxy.corp.example:3128",
    "gpuOperatorDriver": True,
}
SECRET_KEYS = ("sshPrivateKey", "sudoPassword", "httpProxy", "httpsProxy")


def test_secrets_are_nowhere_in_plain_text(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path, SECRETS, SECRET_KEYS)
    everything = json.dumps([resource.inputs for resource in result.resources])
    assert everything.count("hunter1") >= 1
    assert everything.count("hunter2") >= 1
    assert everything.count("proxy-hunter3") >= 4
    for resource in result.resources:
        for shown in (without_secrets(resource.wire), result.component_outputs.get(resource.urn)):
            assert "hunter" not in json.dumps(shown), resource.name
    assert "hunter" not in json.dumps(result.outputs)


def test_secrets_are_on_no_command_line(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path, SECRETS, SECRET_KEYS)
    commands = [r for r in result.resources if r.type.startswith("command:")]
    assert len(commands) == 20
    for command in commands:
        for key in ("create", "update", "delete"):
            assert "hunter" not in command.inputs.get(key, ""), (command.name, key)


def test_commands_over_ssh_pin_the_host_key(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path, SECRETS, SECRET_KEYS)
    remote = result.of_type("command:remote:Command")
    assert {r.name for r in remote} == {
        "cluster-k3s",
        "cluster-kubeconfig",
        "gpu-operator-guard",
        "gpu-operator-cleanup",
        "gpu-operator-watch",
        "gpu-operator-await",
    }
    for command in remote:
        assert command.inputs["connection"]["hostKey"] == SECRETS["sshHostKey"]
        assert command.inputs["connection"]["host"] == "10.1.2.3"


def test_doctor_goes_the_same_way_to_the_host(tmp_path: Path) -> None:
    jump = {"sshJumpHost": "gate", "sshJumpUser": "me", "sshJumpHostKey": "ssh-ed25519 AAAAGATE"}
    result = deploy("dev", tmp_path, {**SECRETS, **jump}, SECRET_KEYS)
    way = json.loads(result.one("doctor-host").inputs["stdin"])["ssh"]
    assert (way["host"], way["host_key"]) == ("10.1.2.3", SECRETS["sshHostKey"])
    assert (way["jump"]["host"], way["jump"]["host_key"]) == ("gate", "ssh-ed25519 AAAAGATE")


def test_kubeconfig_of_our_k3s_is_a_secret(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path)
    (provider,) = result.of_type("pulumi:providers:kubernetes")
    assert without_secrets(provider.wire)["kubeconfig"] == "[secret]"
    assert result.one("cluster-kubeconfig").inputs["logging"] == "none"


def test_proxy_reaches_every_consumer_in_both_cases(tmp_path: Path) -> None:
    proxy = "http://proxy.corp.example:3128"
    changes = {"httpProxy": proxy, "httpsProxy": proxy, "noProxy": "git.corp.example"}
    more = {"nodeAddress": "10.1.2.3", "gpuOperatorDriver": True}
    result = deploy("dev", tmp_path, {**changes, **more})
    data = result.one("proxy-config-map").inputs["data"]
    assert data["HTTP_PROXY"] == data["https_proxy"] == proxy
    assert data["NO_PROXY"] == data["no_proxy"]
    assert data["NO_PROXY"].split(",") == [
        *("10.1.2.3", "10.42.0.0/16", "10.43.0.0/16", ".svc", ".cluster.local"),
        *("127.0.0.1", "localhost", "git.corp.example"),
    ]
    assert len(data) == 6
    operator = result.one("gpu-operator-release").inputs["values"]["driver"]["env"]
    assert {e["name"]: e["value"] for e in operator} == data
    assert data.items() <= result.one("image-ensure").inputs["environment"].items()
    for name, value in data.items():
        assert f"export {name}={value}\n" in result.one("cluster-k3s").program


def test_without_a_proxy_the_pods_environment_has_none(tmp_path: Path) -> None:
    assert deploy("sandbox", tmp_path).one("proxy-config-map").inputs["data"] == {}


def test_node_address_of_an_existing_cluster_comes_from_its_kubeconfig(tmp_path: Path) -> None:
    result = deploy("sandbox", tmp_path, {"httpProxy": "http://proxy.corp.example:3128"})
    data = result.one("proxy-config-map").inputs["data"]
    assert data["NO_PROXY"].startswith("198.18.0.2,10.244.0.0/24,10.96.0.0/16,")


# --- the program's own rules ---


def constructed(node: ast.AST) -> set[str]:
    """Dotted names of everything that is called below `node`."""
    return {ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}


def is_resource_call(name: str) -> bool:
    components = {cls for _, cls in COMPONENTS.values()}
    return (
        name.startswith(("kubernetes.", "local.", "remote."))
        or name in components
        or name.endswith((".script", "runner.run"))
    )


@pytest.mark.parametrize("path", [PROJECT / "__main__.py", *(PROJECT / "infra").rglob("*.py")])
def test_no_resource_is_made_inside_apply(path: Path) -> None:
    tree = ast.parse(path.read_text())
    functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "apply":
            given = call.args[0]
            body = functions.get(given.id, given) if isinstance(given, ast.Name) else given
            assert not [name for name in constructed(body) if is_resource_call(name)]


def test_the_check_for_apply_would_see_one() -> None:
    tree = ast.parse("x.apply(lambda v: kubernetes.core.v1.Pod('p', spec=v))")
    (call,) = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda)]
    assert [name for name in constructed(call) if is_resource_call(name)]


def test_configuration_is_read_in_one_place() -> None:
    readers = [
        path.parent.name
        for path in (PROJECT / "infra").rglob("*.py")
        if "pulumi.Config(" in path.read_text() or "runtime.config" in path.read_text()
    ]
    assert readers == ["settings"]


def test_wrong_settings_register_nothing(tmp_path: Path) -> None:
    monitor = RecordingMonitor()
    settings = raw_settings("dev", {"gpus": 0, "dataRoot": "/var/lib/rancher/data"})
    with pytest.raises(pulumi.RunError) as failure:
        run_with(monitor, "dev", settings)
    assert "gpus: '0'" in str(failure.value)
    assert "dataRoot: '/var/lib/rancher/data'" in str(failure.value)
    assert monitor.deployment.resources == []


def test_commands_on_a_lost_cluster_stay_as_they_are(tmp_path: Path) -> None:
    """With `hostGone` the wait for an answer of the lost cluster held `pulumi up` for minutes."""
    result = deploy("dev", tmp_path, {"hostGone": True})
    on_cluster = [
        r
        for r in result.of_type("command:local:Command")
        if "infra.kube" in r.inputs.get("create", "")
    ]
    assert len(on_cluster) >= 5
    for command in on_cluster:
        assert list(command.request.ignoreChanges) == ["stdin"], command.name
        assert command.request.retainOnDelete, command.name


def test_output_of_another_test_holds_no_program_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker waited for ever, since a test before had made an output outside of a program."""
    monkeypatch.setattr("tests.unit.stacks.LONGEST_SECONDS", 20.0)
    pulumi.Output.from_input("")
    assert deploy("sandbox", tmp_path).outputs

"""The real program with the real stack files, against a recording engine."""

import ast
import importlib
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pulumi
import pytest

from tests.unit.stacks import PROJECT, STACKS, Deployment, Registered, deploy, without_secrets

COMPONENTS = {
    "disttrain:infra:HostTrust": ("infra.host", "HostTrust"),
    "disttrain:infra:Doctor": ("infra.doctor", "Doctor"),
    "disttrain:infra:Cluster": ("infra.cluster", "Cluster"),
    "disttrain:infra:GpuOperator": ("infra.gpu_operator", "GpuOperator"),
    "disttrain:infra:TrainerImage": ("infra.trainer_image", "TrainerImage"),
    "disttrain:infra:Namespace": ("infra.namespace", "Namespace"),
    "disttrain:infra:DataFolder": ("infra.storage", "DataFolder"),
    "disttrain:infra:DataVolume": ("infra.storage", "DataVolume"),
    "disttrain:infra:ProxyConfig": ("infra.proxy", "ProxyConfig"),
    "disttrain:infra:DatasetJob": ("infra.dataset", "DatasetJob"),
    "disttrain:infra:RunConfigMap": ("infra.run_config", "RunConfigMap"),
    "disttrain:infra:SinglePodTraining": ("infra.single_pod", "SinglePodTraining"),
    "disttrain:infra:MultiPodTraining": ("infra.multi_pod", "MultiPodTraining"),
}
COMMON = {
    "pulumi:providers:kubernetes cluster-provider",
    "command:local:Command image-ensure",
    "kubernetes:core/v1:Namespace namespace-namespace",
    "command:local:Command namespace-handover",
    "command:local:Command data-root-folder",
    "kubernetes:core/v1:PersistentVolume data-volume",
    "kubernetes:core/v1:PersistentVolumeClaim data-claim",
    "kubernetes:core/v1:ConfigMap proxy-config-map",
    "kubernetes:core/v1:Secret proxy-secret",
    "kubernetes:core/v1:ConfigMap dataset-config-map",
    "kubernetes:batch/v1:Job dataset-job",
    "kubernetes:core/v1:ConfigMap run-config-map",
    "command:local:Command training-await",
}
ON_K3S = {
    "command:local:Command doctor-host",
    "command:local:Command cluster-k3s",
    "command:local:Command cluster-kubeconfig",
    "kubernetes:core/v1:Namespace gpu-operator-namespace",
    "kubernetes:helm.sh/v3:Release gpu-operator-release",
    "command:local:Command gpu-operator-cleanup",
    "command:local:Command gpu-operator-watch",
    "command:local:Command gpu-operator-await",
}
IN_SANDBOX = {"command:local:Command dataset-file"}
SINGLE = {"kubernetes:batch/v1:Job training-job"}
MULTI = {
    "kubernetes:core/v1:Service training-service",
    "kubernetes:apps/v1:StatefulSet training-stateful-set",
}
EXPECTED = {
    "dev": COMMON | ON_K3S | SINGLE,
    "multipod": COMMON | ON_K3S | MULTI,
    "sandbox": COMMON | IN_SANDBOX | SINGLE,
    "sandbox-multipod": COMMON | IN_SANDBOX | MULTI,
}


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
        assert set(result.component_outputs[component.urn]) == annotated, name
        assert None not in result.component_outputs[component.urn].values(), name


def test_kubernetes_resources_use_the_one_provider(deployment: tuple[str, Deployment]) -> None:
    _, result = deployment
    (provider,) = result.of_type("pulumi:providers:kubernetes")
    assert provider.inputs["clusterIdentifier"].startswith(f"disttrain-{deployment[0]}-")
    for resource in result.resources:
        if resource.type.startswith("kubernetes:"):
            assert resource.request.provider.startswith(provider.urn), resource.name


def test_what_lies_in_our_k3s_goes_with_it(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path)
    install = result.one("cluster-k3s")
    for name in ("namespace", "data", "dataset", "training", "gpu-operator"):
        assert result.one(name).request.deletedWith == install.urn
    existing = deploy("sandbox", tmp_path)
    assert {r.request.deletedWith for r in existing.resources} == {""}


def test_names_of_the_original_set_up_are_kept(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment

    def name(resource: str) -> str:
        return result.one(resource).inputs["metadata"]["name"]

    assert name("namespace-namespace") == "disttrain"
    assert name("data-claim") == "disttrain-pvc"
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


def test_image_is_built_and_imported_under_the_name_that_pods_ask_for(
    deployment: tuple[str, Deployment],
) -> None:
    _, result = deployment
    command = result.one("image-ensure").inputs
    assert command["environment"]["TRAINER_IMAGE"] == result.outputs["image"]
    assert f"--reference {result.outputs['image']}" in command["delete"]
    assert result.outputs["imageDigest"] == "sha256:0123"


def test_image_is_built_where_the_settings_say(tmp_path: Path) -> None:
    for place in ("here", "node"):
        result = deploy("dev", tmp_path, {**SECRETS, "imageBuildOn": place}, SECRET_KEYS)
        assert f"--build-on {place}" in result.one("image-ensure").inputs["create"]


def test_image_command_runs_again_when_the_image_was_missed(tmp_path: Path) -> None:
    def inputs(wanted_at: str) -> dict[str, Any]:
        with patch("tests.unit.stacks.WANTED_AT", wanted_at):
            return deploy("dev", tmp_path).one("image-ensure").inputs

    assert inputs("1") == inputs("1")
    assert inputs("1") != inputs("2")
    assert inputs("2")["environment"]["IMAGE_WANTED_AT"] == "2"


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
    _, result = deployment
    volume, claim = result.one("data-volume").inputs, result.one("data-claim").inputs
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
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
    assert f"export WORKLOAD_UID=uid-of-{uid}\n" in result.one("training-await").program


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
    needed = {"dataset-job", "run-config-map", "proxy-config-map", "data-claim", "image-ensure"}
    needed |= {"gpu-operator-await"} if stack in ("dev", "multipod") else {"dataset-file"}
    assert needed <= before
    assert "namespace-handover" in everything_before(result, result.one("data-claim"))
    assert "namespace-handover" in everything_before(result, result.one("dataset-job"))


def test_outputs_are_named_in_camel_case_and_complete(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment
    outputs = result.outputs
    assert outputs["namespace"] == "disttrain"
    assert outputs["topology"] == ("multi-pod" if "multi" in stack else "single-pod")
    assert outputs["runName"] == stack
    assert outputs["hostRunPath"] == f"{outputs['hostDataPath']}/runs/{stack}"
    assert outputs["runPath"] == f"/data/runs/{stack}"
    assert "_" not in "".join(outputs)
    existing = str(result.one("cluster-provider").inputs["kubeconfig"])
    assert outputs["kubeconfig"] == existing


# --- one node, two stacks ---


def without_owner(manifest: dict[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True)
    return text.replace('"disttrain.dev/stack": "sandbox-multipod"', '"disttrain.dev/stack": "x"')


def test_two_stacks_of_one_node_differ_in_shared_objects_by_the_owner_alone(
    tmp_path: Path,
) -> None:
    first, second = deploy("sandbox", tmp_path), deploy("sandbox-multipod", tmp_path)
    shared = ("namespace-namespace", "data-volume", "data-claim", "proxy-config-map")
    for name in (*shared, "dataset-config-map", "dataset-job"):
        one, other = first.one(name).inputs, second.one(name).inputs
        assert one["metadata"]["labels"]["disttrain.dev/stack"] == "sandbox"
        one["metadata"]["labels"]["disttrain.dev/stack"] = "x"
        assert without_owner(other) == without_owner(one), name


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
    assert len(commands) == 10
    for command in commands:
        for key in ("create", "update", "delete"):
            assert "hunter" not in command.inputs.get(key, ""), (command.name, key)


def test_commands_over_ssh_pin_the_host_key(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path, SECRETS, SECRET_KEYS)
    remote = result.of_type("command:remote:Command")
    assert {r.name for r in remote} == {
        "cluster-k3s",
        "cluster-kubeconfig",
        "data-root-folder",
        "gpu-operator-cleanup",
        "gpu-operator-watch",
        "gpu-operator-await",
        "namespace-handover",
        "training-await",
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
        or name.endswith((".script", ".copy_file"))
    )


@pytest.mark.parametrize("path", [PROJECT / "__main__.py", *(PROJECT / "infra").glob("*.py")])
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
        path.name
        for path in (PROJECT / "infra").rglob("*.py")
        if "pulumi.Config(" in path.read_text() or "runtime.config" in path.read_text()
    ]
    assert readers == ["settings.py"]


def test_main_stays_short() -> None:
    assert len((PROJECT / "__main__.py").read_text().splitlines()) <= 40


def test_wrong_settings_register_nothing(tmp_path: Path) -> None:
    from tests.unit.stacks import RecordingMonitor, raw_settings, run_with

    monitor = RecordingMonitor()
    settings = raw_settings("dev", {"gpus": 0, "dataRoot": "/var/lib/rancher/data"})
    with pytest.raises(pulumi.RunError) as failure:
        run_with(monitor, "dev", settings)
    assert "gpus: '0'" in str(failure.value)
    assert "dataRoot: '/var/lib/rancher/data'" in str(failure.value)
    assert monitor.deployment.resources == []

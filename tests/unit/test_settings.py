"""What the settings refuse, in which words; and that three places list the same keys."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.reader import Reader
from infra.settings import parse_settings, read_settings
from tests.unit.stacks import (
    PROJECT,
    PROJECT_FILE,
    STACKS,
    as_text,
    files_of_this_machine,
    raw_settings,
)

SSH = {"host": "ssh", "sshHost": "node", "sshHostKey": "ssh-ed25519 AAAA"}
PROXY = {"httpProxy": "http://proxy.corp.example:3128", "nodeAddress": "10.1.2.3"}
REQUIRED = "10.1.2.3,10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost"


def refusal(stack: str, changes: dict[str, Any], secret_keys: tuple[str, ...] = ()) -> str:
    with pytest.raises(pulumi.RunError) as failure:
        parse_settings(raw_settings(stack, changes), secret_keys, stack)
    return str(failure.value)


ONE_RANK = {"gpusPerPod": 1}
WRONG: list[tuple[dict[str, Any], str]] = [
    # unknown keys
    (
        {"topolgy": "multi-pod"},
        "topolgy: unknown key with value 'multi-pod'; did you mean topology?",
    ),
    ({"colour": "red"}, "colour: unknown key with value 'red'; allowed: the keys that Pulumi.yaml"),
    # wrong types
    ({"gpus": "three"}, "gpus: 'three' is not allowed; allowed: a whole number >= 1"),
    ({"gpus": 1.5}, "gpus: '1.5' is not allowed"),
    ({"gpus": True}, "gpus: 'true' is not allowed"),
    ({"gpuOperator": "maybe"}, "gpuOperator: 'maybe' is not allowed; allowed: true or false"),
    ({"run": "fast"}, "run: 'fast' is not allowed; allowed: a mapping of keys"),
    ({"run": {"train": {"max_steps": "many"}}}, "run.train.max_steps: 'many' is not allowed"),
    # limits and choices
    ({"gpus": 0}, "gpus: '0' is not allowed; allowed: a whole number >= 1"),
    ({"gpus": -1}, "gpus: '-1' is not allowed"),
    ({"pods": 0}, "pods: '0' is not allowed"),
    (
        {"sshPort": 70000},
        "sshPort: '70000' is not allowed; allowed: a whole number >= 1 and <= 65535",
    ),
    ({"topology": "multipod"}, "single-pod or multi-pod (did you mean multi-pod?)"),
    ({"accelerator": "tpu"}, "accelerator: 'tpu' is not allowed; allowed: gpu or cpu"),
    ({"imageBuilder": "kaniko"}, "allowed: auto or docker or podman or buildah"),
    ({"namespace": "Dist_Train"}, "namespace: 'Dist_Train' is not allowed"),
    ({"namespace": "kube-system"}, "namespace: 'kube-system' is not allowed"),
    ({"dataSize": "50 GB"}, "dataSize: '50 GB' is not allowed; allowed: a size such as 50Gi"),
    ({"runName": "../x"}, "runName: '../x' is not allowed"),
    ({"podCidr": "10.42"}, "podCidr: '10.42' is not allowed; allowed: a network such as"),
    ({"podCidr": "10.43.1.0/24"}, "a network apart from serviceCidr 10.43.0.0/16"),
    ({"k3sVersion": "1.34.2"}, "k3sVersion: '1.34.2' is not allowed; allowed: a release"),
    ({"k3sSha256": "abc"}, "k3sSha256: 'abc' is not allowed; allowed: 64 hex digits"),
    # world size
    ({"gpusPerPod": 4}, "gpusPerPod: 4 is not allowed; allowed: a world size of at most gpus = 3"),
    (
        {"topology": "multi-pod", "gpusPerPod": 2},
        "pods * gpusPerPod: 6 is not allowed; allowed: a world size of at most gpus = 3",
    ),
    ({"processesPerPod": 2}, "processesPerPod: 2 is not allowed; allowed: 1 with accelerator gpu"),
    # the data root
    *(
        ({"dataRoot": path}, f"dataRoot: '{path}' is not allowed; allowed: a folder outside k3s'")
        for path in (
            *("/var/lib/rancher", "/var/lib/rancher/k3s/storage", "/var/lib/kubelet/x"),
            *("/etc/rancher/data", "/run/k3s/data", "/var/lib", "/var", "/srv/../var/lib/rancher"),
        )
    ),
    ({"dataRoot": "data"}, "dataRoot: 'data' is not allowed; allowed: an absolute path"),
    ({"dataRoot": "/"}, "dataRoot: '/' is not allowed; allowed: an absolute path"),
    # the proxy
    ({"httpProxy": "proxy:3128"}, "httpProxy: 'proxy:3128' is not allowed; allowed: http(s)://"),
    ({"httpProxy": "http://u:p@proxy"}, "httpProxy: holds a secret in plain text"),
    (PROXY | {"nodeAddress": ""}, "nodeAddress: '' is not allowed; allowed: the node's address"),
    (
        PROXY | {"noProxyOverride": ".svc,localhost,10.1.2.3,10.42.0.0/16"},
        "a list that also holds 10.43.0.0/16,.cluster.local,127.0.0.1",
    ),
    # the host
    ({"host": "ssh"}, "sshHost: '' is not allowed; allowed: the name or address of the node"),
    (SSH | {"sshHostKey": ""}, "sshHostKey: '' is not allowed; allowed: with host: ssh"),
    ({"sudoPassword": "x"}, "sudoPassword: holds a secret in plain text; allowed: an encrypted"),
    (SSH | {"sshJumpHost": "gate"}, "sshJumpHostKey: '' is not allowed; allowed: with sshJumpHost"),
    # k3s
    ({"k3sMirror": "http://mirror"}, "https, or http with k3sSha256 and k3sInstallerSha256 set"),
    ({"k3sExisting": "keep"}, "k3sExisting: 'keep' is not allowed; allowed: refuse or adopt"),
    (
        {"k3sRegistries": {"configs": {"r": {"auth": {"password": "x"}}}}},
        "k3sRegistries: holds a secret in plain text; allowed: an encrypted value",
    ),
    ({"clusterAccess": "tunnel"}, "direct, unless cluster: k3s and host: ssh"),
    # the data, on destroy
    ({"dataOnDestroy": "purge"}, "purgeConfirmed: '' is not allowed; allowed: /var/lib/disttrain"),
    (
        {"dataOnDestroy": "purge", "purgeConfirmed": "/data"},
        "purgeConfirmed: '/data' is not allowed; allowed: /var/lib/disttrain, to confirm",
    ),
    # the cluster
    ({"cluster": "existing"}, "kubeconfig: '' is not allowed; allowed: the path of a kubeconfig"),
    (
        {"cluster": "existing", "kubeconfig": "/nowhere/kubeconfig"},
        "kubeconfig: '/nowhere/kubeconfig' is not allowed; allowed: a readable kubeconfig",
    ),
    (
        {"kubeContext": "prod"},
        "kubeconfig: 'prod' is not allowed; allowed: empty with cluster: k3s",
    ),
    # the GPU Operator
    (
        {"gpuOperatorVersion": "v25.10.0"},
        "allowed: not this version: its toolkit 1.18.0",
    ),
    ({"gpuOperatorVersion": "v24.9.0"}, "allowed: not this version: its toolkit 1.17.0"),
    ({"gpuOperatorVersion": "v23.9.2"}, "allowed: at least v24.9.1"),
    ({"gpuOperatorVersion": "latest"}, "gpuOperatorVersion: 'latest' is not allowed"),
    ({"gpuOperatorRegime": "legacy"}, "allowed: legacy with charts older than v25.10.1"),
    ({"gpuTimeSlices": 4}, "gpuTimeSlices: 4 is not allowed; allowed: whole GPUs for a world of"),
    (ONE_RANK | {"migProfile": "1g.10gb"}, "migProfile: '1g.10gb' is not allowed; allowed: none"),
    (
        ONE_RANK | {"migProfile": "1g.5gb", "gpuModel": "H100-80GB"},
        "migProfile: '1g.5gb' is not allowed; allowed: for the H100-80GB: 1g.10gb, 1g.20gb",
    ),
    (
        ONE_RANK | {"migProfile": "1g.10gb", "gpuModel": "GTX"},
        "gpuModel: 'GTX' is not allowed; allowed: with migProfile, one of T4",
    ),
    ({"caBundle": "/nowhere/ca.pem"}, "caBundle: '/nowhere/ca.pem' is not allowed"),
    (
        {"caBundle": "/etc/hostname"},
        "caBundle: '/etc/hostname' is not allowed; allowed: a file with",
    ),
    ({"proxyScope": "pods"}, "proxyScope: 'pods' is not allowed; allowed: all or containerd"),
    ({"doctor": "off"}, "doctor: 'off' is not allowed; allowed: error or warning or none"),
    # the image
    ({"imageRepository": "trainer"}, "imageRepository: 'trainer' is not allowed"),
    ({"imageBase": ""}, "imageBase: '' is not allowed"),
    ({"imageBuildOn": "there"}, "imageBuildOn: 'there' is not allowed; allowed: here or node"),
    ({"imageBuildOn": "node"}, "allowed: here, unless host: ssh and cluster: k3s"),
    # the data set
    ({"datasetUrl": "https://x/y"}, "datasetSha256: '' is not allowed; allowed: the checksum"),
    ({"datasetUrl": "y", "datasetSha256": "0" * 64}, "datasetUrl: 'y' is not allowed"),
    ({"datasetFile": "/nowhere/text"}, "datasetFile: '/nowhere/text' is not allowed"),
    (
        {"datasetTokenizer": "words"},
        "datasetTokenizer: 'words' is not allowed; allowed: char, gpt2",
    ),
    # the run
    ({"preset": "gpt5"}, "preset: 'gpt5' is not allowed; --config gpt5: cannot be read"),
    ({"run": {"modell": {}}}, "run.modell: unknown key"),
    (
        {"run": {"model": {"n_layers": 2}}},
        "run.model.n_layers: unknown key with value 2; did you mean",
    ),
    (
        {"run": {"run_name": "x"}},
        "run.run_name: 'x' is not allowed here; allowed: the setting runName",
    ),
    (
        {"run": {"train": {"device": "cpu"}}},
        "run.train.device: 'cpu' is not allowed; allowed: cuda",
    ),
    ({"run": {"train": 3}}, "run.train: 3 must be a mapping"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_setting_is_refused_in_these_words(changes: dict[str, Any], message: str) -> None:
    assert message in refusal("dev", changes)


def test_all_problems_are_shown_at_once() -> None:
    text = refusal("dev", {"gpus": 0, "colour": "red", "dataSize": "big", "topology": "ring"})
    for key in ("gpus", "colour", "dataSize", "topology"):
        assert re.search(rf"^  - {key}: ", text, re.MULTILINE), text


def test_secret_values_are_not_shown_in_problems() -> None:
    text = refusal(
        "dev", {"httpProxy": "http://me:hunter2@", "noSuchKey": "hunter2"}, ("noSuchKey",)
    )
    assert "hunter2" not in text
    assert "hunter2" not in refusal("dev", {"httpsProxy": "ftp://me:hunter2@proxy"})


@pytest.mark.parametrize("stack", STACKS)
def test_every_stack_of_the_project_is_accepted(stack: str, tmp_path: Path) -> None:
    raw = raw_settings(stack, files_of_this_machine(stack, tmp_path))
    settings = parse_settings(raw, (), stack)
    assert settings.stack == settings.run.run_name == stack
    device = "cpu" if "sandbox" in stack else "cuda"
    assert settings.run.train.device == device
    assert settings.run.train.backend == {"cpu": "gloo", "cuda": "nccl"}[device]


@pytest.mark.parametrize("stack", STACKS)
def test_stack_files_hold_only_what_differs_from_the_defaults(stack: str) -> None:
    declared = PROJECT_FILE["config"]
    values = raw_settings(stack).items()
    differing = {key for key, value in values if value != as_text(declared[key]["default"])}
    text = (PROJECT / f"Pulumi.{stack}.yaml").read_text()
    assert set(re.findall(r"^  disttrain:(\w+):", text, re.MULTILINE)) == differing


def test_an_own_list_of_exceptions_is_taken_when_it_holds_the_clusters() -> None:
    override = f"{REQUIRED},.corp.example"
    raw = raw_settings("dev", PROXY | {"noProxyOverride": override})
    assert parse_settings(raw, (), "dev").proxy.no_proxy == override


def test_an_own_text_brings_its_own_checksum(tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("my own text")
    settings = parse_settings(raw_settings("dev", {"datasetFile": str(text)}), (), "dev")
    checksum = hashlib.sha256(b"my own text").hexdigest()
    assert settings.run.dataset.sha256 == checksum
    assert settings.run.dataset.file == f"/data/datasets/.incoming/{checksum}"
    assert (settings.run.dataset.url, settings.run.dataset.size_bytes) == (None, None)
    assert settings.dataset_file is not None
    assert str(settings.dataset_file.incoming).startswith("/var/lib/disttrain/datasets/.incoming/")


def test_a_checksum_that_is_given_is_left_to_the_job_to_judge(tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("my own text")
    changes = {"datasetFile": str(text), "datasetSha256": "0" * 64}
    settings = parse_settings(raw_settings("dev", changes), (), "dev")
    assert settings.run.dataset.sha256 == "0" * 64


def test_run_overrides_reach_the_run(tmp_path: Path) -> None:
    run = {"seed": 7, "model": {"n_layer": 2}, "train": {"learning_rate": "3e-4"}}
    config = parse_settings(raw_settings("dev", {"run": run}), (), "dev").run
    assert (config.seed, config.model.n_layer, config.train.learning_rate) == (7, 2, 3e-4)
    assert config.model.n_embd == 384  # the preset's


# --- the same keys in three places ---


def keys_read() -> list[str]:
    reader = Reader(raw_settings("dev"))
    read_settings(reader, "dev")
    return reader.keys


def test_keys_declared_are_the_keys_read_are_the_keys_documented() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", (PROJECT / "docs/settings.md").read_text(), re.M)
    declared = list(PROJECT_FILE["config"])
    assert sorted(keys_read()) == sorted(declared)
    assert documented == declared  # in the same order


def test_documented_defaults_and_types_are_the_declared_ones() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.*?) \|", (PROJECT / "docs/settings.md").read_text(), re.M
    )
    shown = {"": "", "{}": "", "True": "`true`", "False": "`false`"}
    for key, type_, default in rows:
        declaration = PROJECT_FILE["config"][key]
        text = str(declaration["default"])
        assert (type_, default) == (declaration["type"], shown.get(text, f"`{text}`")), key


def test_every_key_is_declared_with_type_default_and_description() -> None:
    for key, declaration in PROJECT_FILE["config"].items():
        assert set(declaration) == {"type", "default", "description"}, key
        types = {"string": str, "integer": int, "boolean": bool, "object": dict}
        assert type(declaration["default"]) is types[declaration["type"]], key


def test_state_is_refreshed_before_every_operation() -> None:
    assert PROJECT_FILE["options"] == {"refresh": "always"}

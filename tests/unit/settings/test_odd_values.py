"""Odd values that YAML allows: of another type, very large, or empty. Each gets one message."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.settings.form import FORM
from tests.unit.settings.reading import SSH, read, refusal

TWO = {"name": "gpu2", "address": "10.1.2.4", "host_key": "ssh-ed25519 AAAA"}
NODES: dict[str, Any] = {
    **SSH,
    "nodeAddress": "10.1.2.3",
    "storageOptions": {"shared": True},
    "topology": "single-pod",
}
QUEUED: dict[str, Any] = {"controllers": ["kueue"], "queue": "gpus"}
HUGE = 10**18 - 1
TOO_LARGE = "it is too large. Set a whole number of at least"

ONE_MESSAGE: list[tuple[dict[str, Any], str]] = [
    ({"datasetFile": "a\0b"}, "datasetFile: 'a\\x00b' cannot be used: it has a zero byte in it"),
    (
        {"program": {"command": ["a"], "files": "/a\0b"}},
        "program.files: '/a\\\\0b' cannot be used: there is no file. Set the path of a file or of",
    ),
    (
        {"program": {"command": ["a"], "build": "a\0b"}},
        "cannot be used: there is no file Dockerfile. Set the path of a folder with a file Docke",
    ),
    (
        {"controllers": ["kueue"], "controllerCharts": {"kueue": "a\0b"}},
        "controllerCharts.kueue: 'a\\x00b' cannot be used: no chart can be read there (No such fi",
    ),
    (
        {"controllers": ["volcano"], "controllerManifests": {"volcano": "a\0b"}},
        "controllerManifests.volcano: 'a\\x00b' cannot be used: it has no file volcano-",
    ),
    ({"placementLabel": "a\nb"}, "placementLabel: 'a\\nb' cannot be used: it has more than one"),
    ({"podCidr": "a\nb"}, "podCidr: 'a\\nb' cannot be used: it has more than one line"),
    ({"gpuOperatorVersion": "a\nb"}, "gpuOperatorVersion: 'a\\nb' cannot be used: it has more th"),
    ({"imageRepository": "a\nb"}, "imageRepository: 'a\\nb' cannot be used: it has more than one"),
    ({"imageBase": "a\nb"}, "imageBase: 'a\\nb' cannot be used: it has more than one line"),
    ({"trainingTimeoutSeconds": HUGE}, f"{TOO_LARGE} 10 and at most 2147483647."),
    ({"terminationGraceSeconds": HUGE}, f"{TOO_LARGE} 5 and at most 2147483647."),
    ({"gpus": HUGE}, f"{TOO_LARGE} 1 and at most 2147483647."),
    (
        {"accelerator": "cpu", "torchIndexUrl": "", "topology": "indexed-job", "pods": 100001},
        f"{TOO_LARGE} 0 and at most 100000.",
    ),
    (
        {"imageDeliveryOptions": {"keepUnusedMinutes": 10**20}},
        "it is too large. Set a whole number of at most 2147483647.",
    ),
    (
        {
            "tolerations": [
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2**63}
            ]
        },
        "tolerationSeconds is a whole number of 64 bits and goes with the effect NoExecute",
    ),
    (
        {"k3sSha256": "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"},
        "it is not a sha256 checksum of 64 hexadecimal digits (0-9, a-f). Write it like e3b0",
    ),
    ({"extensions": [None]}, "extensions: null cannot be used: it is not the name of a Python"),
    ({"extensions": [True]}, "extensions: true cannot be used: it is not the name of a Python"),
    (
        {**NODES, "nodes": [{**TWO, "taints": [None]}]},
        "nodes[0].taints: null cannot be used: it is",
    ),
    (
        {**NODES, "nodes": [{**TWO, "labels": ["rack"]}]},
        "nodes[0].labels: ['rack'] cannot be used: it is not a mapping of keys such as {rack: r1}.",
    ),
    (
        {**NODES, "nodes": [{**TWO, "taints": [{"key": "a"}]}]},
        "nodes[0].taints: {key: 'a'} cannot be used: it is not a taint",
    ),
    (
        {"controllers": ["volcano"], "controllerManifests": {"volcano": ["a"]}},
        "controllerManifests.volcano: ['a'] cannot be used: it is not a text. Set the path of a fo",
    ),
    (
        {"controllers": ["kueue"], "controllerCharts": {"kueue": None}},
        "controllerCharts.kueue: null cannot be used: it is not a text. Set a path on this machine",
    ),
    (
        {"cpuPerRank": 1.5},
        "cpuPerRank: '1.5' cannot be used: it is not auto or a whole number of CPUs or of "
        "thousandths (m). Write it like 2 or 1500m.",
    ),
    (
        {"memoryPerRank": 8},
        "memoryPerRank: '8' cannot be used: it is not auto or a size in Ki, Mi, Gi or Ti. Write it "
        "like 4Gi.",
    ),
    (
        {"datasetFile": "/dev/zero"},
        "datasetFile: '/dev/zero' cannot be used: it is not a regular f",
    ),
    (
        {"datasetFile": "/tmp"},
        "datasetFile: '/tmp' cannot be used: it is a folder, and one file is copied to the volume.",
    ),
    (
        {"datasetFile": "/dev/null"},
        "datasetFile: '/dev/null' cannot be used: it is not a regular f",
    ),
    ({**SSH, "sshHost": "-v"}, "sshHost: '-v' cannot be used: it is not the name of a host. Write"),
    ({**SSH, "sshHost": "gpu..1"}, "sshHost: 'gpu..1' cannot be used: it is not the name of a hos"),
    (
        {**SSH, "sshHost": "a" * 254},
        "aaa' cannot be used: it is not the name of a host. Write it li",
    ),
    (
        {**NODES, "nodes": [{**TWO, "address": "-v"}]},
        "nodes[0].address: '-v' cannot be used: it is not the name of a host. Write it like gpu01.",
    ),
    (
        {"nodeAddress": "0.0.0.0"},
        "nodeAddress: '0.0.0.0' cannot be used: it is the address of no m",
    ),
    ({"nodeAddress": "224.0.0.5"}, "nodeAddress: '224.0.0.5' cannot be used: it is the address of"),
    (
        {"nodeAddress": "10.42.3.4"},
        "nodeAddress: '10.42.3.4' cannot be used: it is in the network of the pods (podCidr "
        "10.42.0.0/16). Set a podCidr that has no address of a machine.",
    ),
    ({"podCidr": "127.0.0.0/8"}, "podCidr: '127.0.0.0/8' cannot be used: no pod can have an addre"),
    ({"podCidr": "224.0.0.0/8"}, "podCidr: '224.0.0.0/8' cannot be used: no pod can have an addre"),
    (
        {"dataRoot": "/proc/x"},
        "dataRoot: '/proc/x' cannot be used: the kernel makes what is in /pr",
    ),
    (
        {**NODES, "nodes": [{**TWO, "labels": {"kubernetes.io/hostname": "x"}}]},
        "nodes[0].labels.kubernetes.io/hostname: 'x' cannot be used: the kubelet sets it itself.",
    ),
    (
        {"k3sRegistries": {"mirrors": {"docker.io": {"endpoints": ["https://a.example"]}}}},
        "k3sRegistries.mirrors['docker.io'].endpoints: [secret] cannot be used: k3s has no such "
        "key (did you mean endpoint?)",
    ),
    (
        {"k3sRegistries": {"configs": {"a": {"auth": {"username": "a", "pasword": "b"}}}}},
        "k3sRegistries.configs['a'].auth.pasword: [secret] cannot be used: k3s has no such key",
    ),
    (
        {"k3sRegistries": {"configs": {"a": {"tls": {"insecure_skip_verify": "yes"}}}}},
        "configs['a'].tls.insecure_skip_verify: [secret] cannot be used: it is not true or false",
    ),
    (
        {"program": {"command": ["a"], "image": "x:y:z"}},
        "program.image: 'x:y:z' cannot be used: it is not the name of an image",
    ),
    (
        {"datasetUrl": "https://host.example/a", "datasetSha256": "0"},
        "datasetSha256: '0' cannot be used: it is not a sha256 checksum",
    ),
    (
        {"run": {"train": {"learning_rate": 0}}},
        "run.train.learning_rate: 0 cannot be used: it is t",
    ),
    ({"podLabls": "2026-11-28 00:00:00 +0000 UTC"}, "UTC' cannot be used: there is no such key"),
    (
        {**QUEUED, "queues": {"name": "gpus", "quota": {"memory": "11Gi"}}},
        "queues.quota.memory: '11Gi' cannot be used: the run of this stack is in queue gpus and "
        "requests 3 * 4Gi (memoryPerRank), and would wait for ever. Set at least that",
    ),
    (
        {**QUEUED, "queues": {"name": "gpus", "quota": {"cpu": "2999m"}}},
        "queues.quota.cpu: '2999m' cannot be used: the run of this stack is in queue gpus and "
        "requests 3 * 1 (cpuPerRank), and would wait for ever. Set at least that",
    ),
    ({"run": {"train": {"device": "cuda:0"}}}, "run.train.device: 'cuda:0' cannot be used: accel"),
    ({"run": {"train": {"device": "cpu"}}}, "run.train.device: 'cpu' cannot be used: accelerator"),
    (
        {"migProfile": "1g.5gb"},
        "migProfile: '1g.5gb' cannot be used: the A10 (gpuModel) has no MIG",
    ),
]


@pytest.mark.parametrize(("changes", "words"), ONE_MESSAGE)
def test_odd_values_get_one_message(changes: dict[str, Any], words: str) -> None:
    """An odd value is shown as a stack's file writes it, with the reason and the remedy. Without
    the refusal `pulumi up` would fail later, or never end.
    """
    (line,) = [line for line in refusal(changes).splitlines() if line.startswith("  - ")]
    assert words in line
    assert FORM.match(line.replace('"', "'"))


def test_largest_whole_numbers_are_accepted() -> None:
    """A number that the engine and Kubernetes can take is accepted, however large."""
    assert read({"trainingTimeoutSeconds": 2**31 - 1}).run


def test_empty_file_of_a_text_is_refused(tmp_path: Path) -> None:
    """A text without a character would end in the Job that prepares the data set."""
    (tmp_path / "empty.txt").touch()
    text = refusal({"datasetFile": str(tmp_path / "empty.txt")})
    assert "empty.txt' cannot be used: it is empty. Set the path of a file on this machine." in text


@pytest.mark.parametrize(
    ("key", "name", "words"),
    [
        ("caBundle", "missing", "it cannot be read (No such file or directory)"),
        ("caBundle", "binary", "it cannot be read (it is not a text in UTF-8)"),
        ("kubeconfig", "missing", "it cannot be read (No such file or directory)"),
        (
            "kubeconfig",
            "binary",
            "it cannot be read (it is not a text in UTF-8)",
        ),
        (
            "bundle",
            "missing",
            "is not a complete bundle (manifest.json: No such file or",
        ),
        (
            "bundle",
            "bundle",
            "is not a complete bundle (manifest.json.sha256 holds no checksum)",
        ),
        (
            "gpuOperatorChart",
            "missing",
            "no chart can be read there (No such file or directory)",
        ),
        (
            "gpuOperatorChart",
            "binary",
            "no chart can be read there (it is no packed chart, or",
        ),
        (
            "gpuOperatorChart",
            "chart",
            "no chart can be read there (its Chart.yaml is no YAML",
        ),
        (
            "gpuOperatorChart",
            "empty.tgz",
            "no chart can be read there (it has no Chart.yaml)",
        ),
    ],
)
def test_unreadable_files_are_named_in_words(
    key: str, name: str, words: str, tmp_path: Path
) -> None:
    """Why a file cannot be read is said in one line without the words of Python's errors."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for folder, file, text in (
        *(("bundle", "manifest.json", "{}"), ("bundle", "manifest.json.sha256", "")),
        ("chart", "Chart.yaml", "a: ["),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / file).write_text(text)
    with tarfile.open(tmp_path / "empty.tgz", "w:gz"):
        pass
    more = {"cluster": "existing"} if key == "kubeconfig" else {}
    lines = refusal({**more, key: str(tmp_path / name)}).splitlines()
    (line,) = [line for line in lines if line.startswith(f"  - {key}: ")]
    assert words in line


def test_missing_text_is_described_by_settings() -> None:
    """The message about a missing text names settings of the stack, and no keys of the trainer."""
    text = refusal({"preset": "gpt2-124m"})
    assert "datasetUrl: not set, and so there is no text to train on." in text
    assert "several in datasetFiles, or a file in datasetFile." in text


def test_quota_that_is_enough_for_the_run_is_accepted() -> None:
    """A quota of just what the ranks request is enough."""
    assert read({**QUEUED, "queues": {"name": "gpus", "quota": {"memory": "12Gi", "cpu": 3}}}).run


@pytest.mark.parametrize(
    "registries",
    [
        {"configs": {"a.example": {"auth": {"username": "me", "password": 12345678}}}},
        {"configs": {"a.example": {"auth": {"auth": "bWU6aHVudGVyMg=="}}}},
        {"mirrors": {"docker.io": {"endpoint": ["https://me:hunter2@a.example"]}}},
    ],
)
def test_each_secret_in_registries_must_be_encrypted(registries: dict[str, Any]) -> None:
    """A password of digits alone, for YAML a number, and one in an address are secrets, too: they
    are refused in plain text, and taken if they are encrypted.
    """
    changes = {"k3sRegistries": registries}
    assert "k3sRegistries: [secret] cannot be used: it holds a secret in plain" in refusal(changes)
    read(changes, ["k3sRegistries"])


def test_registries_without_secret_need_no_encryption() -> None:
    """The part `auth` is no secret itself, nor is a user alone or a password that is not set."""
    auth = {"username": "me", "password": None}
    mirrors = {"docker.io": {"endpoint": ["https://a.example:5000"]}}
    read({"k3sRegistries": {"configs": {"a.example": {"auth": auth}}, "mirrors": mirrors}})

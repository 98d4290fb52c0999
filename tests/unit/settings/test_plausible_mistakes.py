"""Wrong values that a user may well type, each with the one message that it gets."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.unit.settings.form import FORM
from tests.unit.settings.reading import SSH, read, refusal

ADDRESSES: list[tuple[dict[str, Any], str]] = [
    (
        {"nodeAddress": "10.1.2.3:6443"},
        "'10.1.2.3:6443' cannot be used: a port stands with it. Set 10",
    ),
    (
        {"nodeAddress": "10.1.2.300"},
        "'10.1.2.300' cannot be used: it is neither an IPv4 address nor",
    ),
    (
        {"nodeAddress": "fd00:::4"},
        "'fd00:::4' cannot be used: it is neither an IPv6 address nor a name",
    ),
    ({"podCidr": "10.42.0.0"}, "'10.42.0.0' cannot be used: it is a single address and not a netw"),
    ({"podCidr": "10.42.0.1/16"}, "an address of the network 10.42.0.0/16. Set 10.42.0.0/16."),
    (
        {"podCidr": "10.42.0.0/25"},
        "it is too small for a k3s. Set a network with a prefix of at mo",
    ),
    ({"serviceCidr": "10.43.0.0/30"}, "it is too small for a k3s. Set a network with a prefix of"),
    (
        {**SSH, "sshHost": "root@node"},
        "sshHost: 'root@node' cannot be used: it is not the name or address of a host. Write it "
        "like gpu01.example.com, and the user in sshUser.",
    ),
    (
        {"host": "gpu01.example.com"},
        "host: 'gpu01.example.com' cannot be used: host has no such choice. Set local or ssh, and "
        "the machine's name or address in sshHost.",
    ),
    (
        {**SSH, "sshHostKey": "node ssh-ed25519 AAAA"},
        "Write it like ssh-ed25519 AAAA..., without the host's name that ssh-keyscan prints before",
    ),
    ({**SSH, "sshHostKey": "SHA256:abc"}, "sshHostKey: 'SHA256:abc' cannot be used: it is not a h"),
    (
        {**SSH, "sshJumpHost": "gate", "sshJumpHostKey": "SHA256:abc"},
        "sshJumpHostKey: 'SHA256:abc' cannot be used: it is not a host's public key",
    ),
]

DOWNLOADS: list[tuple[dict[str, Any], str]] = [
    ({"k3sMirror": "https:///k3s"}, "k3sMirror: 'https:///k3s' cannot be used: it has no host, or"),
    ({"k3sMirror": "https://[::1/k3s"}, "k3sMirror: 'https://[::1/k3s' cannot be used: it has no"),
    ({"gpuOperatorChart": "https://"}, "gpuOperatorChart: 'https://' cannot be used: it is not an"),
    ({"gpuOperatorChart": "oci://host/chart "}, "it is not an address: it has no host, or a space"),
    ({"noProxy": "corp.example git.example"}, "noProxy: 'corp.example git.example' cannot be used"),
    ({"noProxy": "corp.example,http://git"}, "noProxy: 'http://git' cannot be used: it is neither"),
    (
        {"k3sRegistries": {"mirror": {}}},
        "k3sRegistries.mirror: [secret] cannot be used: there is no",
    ),
    (
        {"k3sRegistries": {"mirrors": {"a": "b"}}},
        "mirrors['a']: [secret] cannot be used: it is not",
    ),
    (
        {"k3sRegistries": {"mirrors": {"a": {"endpoint": "https://b"}}}},
        "k3sRegistries.mirrors['a'].endpoint: [secret] cannot be used: it is not a list of",
    ),
    (
        {"k3sRegistries": {"configs": ["a"]}},
        "k3sRegistries.configs: [secret] cannot be used: it is",
    ),
]

FILE = {"url": "https://host/a.parquet"}
WORDS: list[tuple[dict[str, Any], str]] = [
    ({"imageBase": "'python:3.11'"}, "it is not the name of an image. Write it like docker.io/li"),
    ({"imageBase": "https://docker.io/python"}, "it is not the name of an image. Write it like do"),
    (
        {"imageBase": "python@sha256:12ab"},
        "it is not the name of an image. Write it like docker.io",
    ),
    ({"kubectl": "'kubectl"}, 'kubectl: "\'kubectl" cannot be used: a quotation mark in it has no'),
    ({"kubectl": " "}, "kubectl: '' cannot be used: it is not a command. Write it like kubectl."),
    (
        {"kubectl": '"k3s kubectl"'},
        "it is one word, which would be the name of the program. Set k3",
    ),
    (
        {"datasetTokenizer": "gpt-2"},
        "it is not char, gpt2 or the path of a tokenizer.json. Write it",
    ),
    (
        {"datasetFiles": [{**FILE, "sha256": "sha256:" + "a" * 64}]},
        "it is not a sha256 checksum of 64 hexadecimal digits (0-9, a-f). Write it like e3b0c442",
    ),
]


def only_line(text: str) -> str:
    """Return the only message of an error, whose form is checked."""
    (line,) = [line for line in text.splitlines() if line.startswith("  - ")]
    assert FORM.match(line.replace('"', "'"))
    return line


@pytest.mark.parametrize(("changes", "words"), ADDRESSES)
def test_wrong_addresses_get_one_message(changes: dict[str, Any], words: str) -> None:
    """A wrong address or network gets exactly one message. Otherwise k3s or NO_PROXY would fail
    later, or the value would also be called missing.
    """
    assert words in only_line(refusal(changes))


@pytest.mark.parametrize(("changes", "words"), DOWNLOADS)
def test_wrong_sources_get_one_message(changes: dict[str, Any], words: str) -> None:
    """A wrong address or list of places to download from gets exactly one message. Otherwise k3s
    would not start, or the value would be ignored.
    """
    assert words in only_line(refusal(changes))


@pytest.mark.parametrize(("changes", "words"), WORDS)
def test_wrong_words_get_one_message(changes: dict[str, Any], words: str) -> None:
    """A wrong name or command gets exactly one message in words, without a regular expression.
    Otherwise the build or a script would fail later.
    """
    assert words in only_line(refusal(changes))


def test_blank_command_of_ctr_is_none() -> None:
    """A blank `ctr` is the same as none, and not a command without a word."""
    assert read({"ctr": " "}).own_platform.image.ctr == read().own_platform.image.ctr


def test_path_with_space_is_a_command() -> None:
    """The path in a command may contain a space if it is quoted."""
    kubectl = read({"kubectl": "'/opt/my tools/kubectl' --v=1"}).own_platform.cluster.kubectl
    assert shlex.split(kubectl) == ["/opt/my tools/kubectl", "--v=1"]


def test_right_registries_are_taken() -> None:
    """Correct `k3sRegistries` are accepted, with empty parts too."""
    mirrors = {"docker.io": {"endpoint": ["https://mirror.example"]}, "a": {}, "b": None}
    read({"k3sRegistries": {"mirrors": mirrors, "configs": {"mirror.example": {"tls": {}}}}})


def test_small_networks_of_others_count(tmp_path: Path) -> None:
    """Networks of an existing cluster may be as small as they are, because they are only entries of
    NO_PROXY.
    """
    file = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "https://10.1.2.3:6443"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "me"}}
    content = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
    file.write_text(json.dumps(content))
    others: dict[str, Any] = {"cluster": "existing", "kubeconfig": str(file)}
    others |= {"storage": "storage-class", "storageOptions": {"className": "ssd"}}
    others |= {"imageDelivery": "registry", "imageRepository": "registry.example.org/trainer"}
    networks = {"podCidr": "10.42.0.0/28", "serviceCidr": "10.43.0.0/30"}
    assert read({**others, **networks}).own_platform.cluster.pod_cidr == "10.42.0.0/28"

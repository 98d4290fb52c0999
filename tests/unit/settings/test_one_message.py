"""A mistake gets one message, which shows what the user has written, and says how to write it."""

from typing import Any

import pytest

from infra.kinds import KINDS
from infra.settings import parse_settings
from tests.unit.settings.form import FORM
from tests.unit.settings.reading import SSH, refusal
from tests.unit.stacks import raw_settings

PROMETHEUS = {"monitoring": "install", "monitoringStorageClass": "local-path"}
PROXY = {"httpProxy": "http://proxy:3128", "nodeAddress": ""}
OVERRIDE = {
    "noProxyOverride": "10.1.2.3,10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost",
    "nodeAddress": "10.1.2.3",
}
TOPOLOGY = {
    "queues": {"name": "gpus", "topology": ["zone", "kubernetes.io/hostname"]},
    **{"queue": "gpus", "topology": "indexed-job", "pods": 2, "gpus": 6},
}
PROGRAM = "program.command"
SET_IT = "Pulumi made this of a date without quotation marks. Put it in quotation marks"
DAY = "2026-11-28 00:00:00 +0000 UTC"
TWO = {"name": "gpu2", "address": "10.1.2.4", "host_key": "ssh-ed25519 AAAA"}
SHARED = {"storageOptions": {"shared": True}, "topology": "single-pod"}
ONE_MESSAGE: list[tuple[dict[str, Any], str]] = [
    (
        {"preset": "/etc/preset"},
        "preset: '/etc/preset' cannot be used: it is not a name of at most 63 letters, digits, "
        "'.', '_' and '-' that begins with a letter or a digit",
    ),
    ({"runName": "_mine"}, "runName: '_mine' cannot be used: it is not a name of at most 63 let"),
    (
        {**PROMETHEUS, "monitoringStorageGib": "10Gi"},
        "monitoringStorageGib: '10Gi' cannot be used: it is not a whole number",
    ),
    (
        {"monitoring": "instal", "monitoringStorageClass": "a", "monitoringStorageGib": 1},
        "monitoring: 'instal' cannot be used: monitoring has no such choice",
    ),
    (
        {"dataRoot": "data", "dataOnDestroy": "purge", "purgeConfirmed": "data"},
        "dataRoot: 'data' cannot be used: it is not an absolute path of plain names",
    ),
    ({**PROXY, "nodeAddress": "a b"}, "nodeAddress: 'a b' cannot be used: it is not a host"),
    ({**PROXY, **SSH, "sshHost": "me@node"}, "sshHost: 'me@node' cannot be used: it is not the n"),
    ({**PROXY, **OVERRIDE, "podCidr": "10.42"}, "podCidr: '10.42' cannot be used: it is not a n"),
    ({**PROXY, **OVERRIDE, "nodeAddress": "1.2"}, "nodeAddress: '1.2' cannot be used: it is nei"),
    (
        {**SSH, "sshHost": "me@node", "nodes": [TWO], **SHARED},
        "sshHost: 'me@node' cannot be used: it is not the name or address of a host",
    ),
    (
        {**SSH, "sshHost": "me@node", "storage": "nfs-first-node"},
        "sshHost: 'me@node' cannot be used: it is not the name or address of a host",
    ),
    (
        {**SSH, "sshUser": "a b", "nodeAddress": "10.1.2.3", "nodes": [TWO], **SHARED},
        "sshUser: 'a b' cannot be used: it is not the name of a user",
    ),
    (
        {**SSH, "host": "gpu01"},
        "host: 'gpu01' cannot be used: host has no such choice. Set local or ssh, and",
    ),
    (
        {"nodes": "gpu2", "lostNodes": "replace"},
        "nodes: 'gpu2' cannot be used: it is a single value and must be a list",
    ),
    (
        {**TOPOLOGY, "placementLabel": "a b"},
        "placementLabel: 'a b' cannot be used: it is not the key of a label",
    ),
    (
        {"pods": "two", "migProfile": "1g.10gb", "gpuModel": "H100-80GB", "gpusPerPod": 1},
        "pods: 'two' cannot be used: it is not a whole number",
    ),
    ({"podEnvironment": {"A": None}}, "podEnvironment.A: null cannot be used: it is not a single"),
    ({"program": {"command": None}}, "program.command: null cannot be used: it names no program"),
    ({"run": {"train": {"max_steps": None}}}, "run.train.max_steps: null cannot be used: it is n"),
    ({"run": {"train": {"max_steps": True}}}, "run.train.max_steps: true cannot be used: it is n"),
    ({"tolerations": [{"key": None, "operator": "Exists"}]}, "null cannot be the key of a taint"),
    (
        {"program": {"command": '["python", "train.py"]'}},
        "it is one text, and no shell would divide it into words. Write it as a list: [python, "
        "train.py].",
    ),
    (
        {"program": {"command": "[python, train.py]"}},
        "divide it into words. Write it as a list: [python, train.py].",
    ),
    (
        {"program": {"command": ["python train.py", "--steps", "5"]}},
        f"{PROGRAM}[0]: 'python train.py' cannot be used: it would be the name of the program, "
        "with its spaces. Write each word as an item of its own: [python, train.py, --steps, '5'].",
    ),
    (
        {"queues": {"name": {"a": [True, None, 1.5, "b"], "x y": "c"}}},
        "queues.name: {a: [true, null, 1.5, 'b'], 'x y': 'c'} cannot be used",
    ),
    ({"podEnvironmnt": {"A": True}}, "podEnvironmnt: {A: true} cannot be used: there is no such"),
    ({"podEnvironment": ["a", True]}, "podEnvironment: ['a', true] cannot be used: it is a list"),
    ({"extensions": {"a": None}}, "extensions: {a: null} cannot be used: it is a mapping of keys"),
    (
        {"program": {"command": ["a"]}, "datasetOptions": {"val_share": 0.1}},
        "datasetOptions: {val_share: 0.1} cannot be used: program is set",
    ),
    ({"datasetFiles": [["a"]]}, "datasetFiles[0]: ['a'] cannot be used: it is no mapping of keys."),
    ({"datasetOptions": {"x": {"a": True}}}, "datasetOptions.x: {a: true} cannot be used"),
    (
        {"datasetOptions": {"val_share": 0.1, "val_tokens": 1000}},
        "datasetOptions.val_share: 0.1 cannot be used: val_tokens is set too, and takes its place. "
        "Remove one of the two.",
    ),
    ({"controllerCharts": {"x": {"a": True}}}, "controllerCharts.x: {a: true} cannot be used"),
    (
        {"tolerations": [{"key": "a", "operator": {"b": True}}]},
        "tolerations: {key: 'a', operator: {b: true}} cannot be used: the operator {b: true} is",
    ),
    (
        {"network": "multus", "networkOptions": {"attachment": "fast"}},
        "networkOptions.attachment: 'fast' cannot be used: network: multus has no such option",
    ),
    (
        {"storageOptions": {"server": "nfs.example.com"}},
        "storageOptions.server: 'nfs.example.com' cannot be used: storage: host-path has no such "
        "option. Set storage: nfs, which has it, or remove it.",
    ),
    (
        {"topologyOptions": {"queue": "gpus"}},
        "topologyOptions.queue: 'gpus' cannot be used: topology: single-pod has no options. Set "
        "topology: volcano, which has it, or remove it.",
    ),
    ({"program": {"Command": ["a"]}}, "program.Command: ['a'] cannot be used: there is no such"),
    ({"queues": {"nmae": "gpus"}, "topology": "none"}, "queues.nmae: 'gpus' cannot be used: "),
    ({"runName": DAY}, SET_IT),
    ({"podEnvironment": {"DAY": DAY}}, "podEnvironment.DAY: '2026-11"),
    ({"program": {"command": ["a"], "per": DAY}}, SET_IT),
    ({"run": {"train": {"max_steps": DAY}}}, SET_IT),
    ({"extensions": [DAY]}, f"extensions[0]: '{DAY}' cannot be used"),
    (
        {"tolerations": [{"key": "a", "value": DAY}]},
        f"tolerations[0].value: '{DAY}' cannot be used: {SET_IT}",
    ),
    (
        {**SSH, "nodeAddress": "10.1.2.3", "nodes": [{**TWO, "taints": [DAY]}], **SHARED},
        f"nodes[0].taints[0]: '{DAY}' cannot be used: {SET_IT}",
    ),
    (
        {"k3sRegistries": {"mirrors": {"a.example": {"endpoint": DAY}}}},
        f"k3sRegistries.mirrors.a.example.endpoint: [secret] cannot be used: {SET_IT}",
    ),
    ({"imageRepository": DAY}, f"imageRepository: '{DAY}' cannot be used: {SET_IT}"),
    (
        {"datasetOptions": {"format": DAY}},
        f"datasetOptions.format: '{DAY}' cannot be used: {SET_IT}",
    ),
    (
        {"program": {"command": ["train", "2026-11-28 10:00:00.5 +0200 +0200"]}},
        f"{PROGRAM}[1]: '2026-11-28 10:00:00.5 +0200 +0200' cannot be used: {SET_IT}",
    ),
]


def lines_of(said: str) -> list[str]:
    """Return the messages of a refusal, one an item."""
    return [line for line in said.splitlines() if line.startswith("  - ")]


@pytest.mark.parametrize(("changes", "words"), ONE_MESSAGE)
def test_a_mistake_gets_one_message(changes: dict[str, Any], words: str) -> None:
    """A second message about the same mistake would show a value that nobody has written, such as
    `preset: ''`. `None` and `True` are no words of a stack's file.
    """
    (line,) = lines_of(refusal(changes))
    assert words in line
    assert FORM.match(line.replace('"', "'"))


def test_webhook_beside_a_wrong_monitoring_is_no_mistake() -> None:
    """What `monitoring` was meant to be is not known, so nothing is said about the webhook."""
    changes = {"monitoring": "instal", "alertWebhook": "https://chat.example/hook"}
    (line,) = lines_of(refusal(changes, ["alertWebhook"]))
    assert line.startswith("  - monitoring: 'instal' cannot be used: ")


def test_other_faults_beside_a_date_are_shown() -> None:
    """A date without quotation marks hides the messages about itself and about the value that
    contains it. Other mistakes in the same setting are shown with it.
    """
    given = {"train": {"max_steps": DAY, "grad_clip": "x"}, "model": {"layer": 2}}
    shown = lines_of(refusal({"run": given}))
    assert [line.removeprefix("  - ").partition(": ")[0] for line in shown] == [
        *("run.model.layer", "run.train.grad_clip", "run.train.max_steps")
    ]


@pytest.mark.parametrize("stack", ["stack-", "-stack", "_stack", "a" * 64])
def test_the_name_of_a_stack_is_explained_once(stack: str) -> None:
    """The message about a stack's name says all rules. The run's name, which is the same one unless
    `runName` is set, gets no message of its own.
    """
    with pytest.raises(Exception, match="settings of this stack are not valid") as failure:
        parse_settings(raw_settings("dev"), (), stack, KINDS)
    (line,) = lines_of(str(failure.value))
    assert line.startswith(f"  - name of the stack: '{stack}' cannot be used: ")
    assert line.endswith("'.', '_' and '-' that begins and ends with a letter or a digit.")


def test_a_path_with_a_space_is_a_program() -> None:
    """The first word of a command may be a path with a space in it."""
    raw = raw_settings("dev", {"program": {"command": ["/opt/my tools/train", "a b"]}})
    run = parse_settings(raw, (), "dev", KINDS).run
    assert run
    assert run.config.program
    assert run.config.program.command == ("/opt/my tools/train", "a b")


def test_a_variable_cannot_be_set_twice() -> None:
    """A variable in podEnvironment and in podSecrets is refused. The pods would get the one of
    podEnvironment, and the secret would count for nothing.
    """
    given = {"podEnvironment": {"TOKEN": "a", "B": "b"}, "podSecrets": {"TOKEN": "hidden"}}
    (line,) = lines_of(refusal(given, ["podSecrets"]))
    assert line.startswith("  - podEnvironment.TOKEN: [secret] cannot be used: podSecrets has a ")
    assert "pulumi config rm --path podEnvironment.TOKEN" in line

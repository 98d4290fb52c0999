"""Settings that have no effect because of others are named in a note."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.settings.idle import idle_settings
from tests.unit.settings.reading import SSH, read
from tests.unit.stacks import STACKS, deploy, raw_settings

CPU = {"accelerator": "cpu", "torchIndexUrl": ""}
ADOPTED = {"k3sExisting": "adopt", "gpuOperator": "false"}
SEVERAL = {"topology": "indexed-job", "pods": 3, "gpusPerPod": 1}
IDLE: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    (
        {"gpuOperator": "false", "gpuOperatorDriver": True, "gpuOperatorRegime": "cdi"},
        ["gpuOperatorDriver, gpuOperatorRegime: set, and without effect, because this stack does"],
    ),
    ({"gpuOperatorDriver": True}, []),
    (
        {**ADOPTED, "k3sMirror": "https://mirror.example/k3s", "k3sForce": True},
        ["k3sMirror, k3sForce: set, and without effect, because this stack installs no k3s (clus"],
    ),
    ({"sshUser": "ubuntu"}, ["sshUser: set, and without effect, because host is local and nodes"]),
    ({**SSH, "sshUser": "ubuntu"}, []),
    ({"noProxy": "a.example"}, ["noProxy: set, and without effect, because neither httpProxy nor"]),
    (
        {**CPU, "migProfile": "1g.10gb"},
        ["migProfile: set, and without effect, because accelerator"],
    ),
    ({"bundleSha256": "0" * 64}, ["bundleSha256: set, and without effect, because bundle is not"]),
    ({"placement": "packed"}, ["placement: set, and without effect, because the run has one pod"]),
    ({**SEVERAL, "placement": "packed", "placementLabel": "rack"}, []),
    (
        {**SEVERAL, "placementLabel": "rack"},
        ["placementLabel: set, and without effect, because placement is auto"],
    ),
    ({"whenBusyTimeoutSeconds": 60}, ["whenBusyTimeoutSeconds: set, and without effect, because"]),
    ({"whenBusyTimeoutSeconds": 60, "whenBusy": "wait"}, []),
    ({"whenBusyTimeoutSeconds": 60, "topology": "none"}, []),
]


@pytest.mark.parametrize(("changes", "said"), IDLE)
def test_settings_without_effect_are_named(changes: dict[str, Any], said: list[str]) -> None:
    """A setting that has no effect is named with the reason, and one that has one is not."""
    settings = read(changes)
    notes = idle_settings(raw_settings("dev", changes), settings.platform, settings.run)
    assert len(notes) == len(said)
    assert all(note.startswith(words) for note, words in zip(notes, said, strict=True))


@pytest.mark.parametrize("stack", STACKS)
def test_notes_are_shown_by_the_program(
    stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`preview` and `up` show the notes, and the stacks of the project get none."""
    shown: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", lambda text, *_, **__: shown.append(text))
    deploy(stack, tmp_path)
    assert not any("without effect" in text for text in shown)
    deploy(stack, tmp_path, {"whenBusyTimeoutSeconds": 60})
    assert sum("whenBusyTimeoutSeconds: set, and without effect" in text for text in shown) == 1

"""What a k3s that is not there yet lacks for a run is said before it is installed."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.platform.new_k3s import missing_controllers
from tests.unit.settings.reading import read
from tests.unit.stacks import deploy

KUEUE = {"controllers": ["kueue"]}
QUEUES = {"queues": {"name": "gpus"}}
MISSING: list[tuple[dict[str, Any], list[str]]] = [
    ({"topology": "jobset"}, ["topology: 'jobset' needs JobSet, which a new k3s does not have"]),
    ({"topology": "lws"}, ["Add lws to controllers: `pulumi config set --path 'controllers[0]' l"]),
    ({"topology": "mpijob", **KUEUE}, ["`pulumi config set --path 'controllers[1]' mpi-operator`"]),
    ({"topology": "jobset", "controllers": ["jobset"]}, []),
    ({"queue": "gpus"}, ["queue: 'gpus' needs Kueue, which a new k3s does not have"]),
    ({"queue": "gpus", **KUEUE}, []),
    ({"topology": "jobset", "queue": "gpus"}, ["controllers[0]' jobset", "controllers[1]' kueue"]),
    ({"queue": "gpus", **QUEUES}, ["queues.name: 'gpus' needs Kueue"]),
    ({"topology": "none", **QUEUES}, ["queues.name: 'gpus' needs Kueue"]),
    ({**QUEUES, **KUEUE}, []),
    ({}, []),
    ({"topology": "multi-pod"}, []),
    ({"topology": "indexed-job"}, []),
]


@pytest.mark.parametrize(("changes", "said"), MISSING)
def test_missing_controllers_are_named(changes: dict[str, Any], said: list[str]) -> None:
    """Each setting that needs a controller is named, with the command that installs it."""
    settings = read({"gpusPerPod": 1, **changes})
    found = missing_controllers(settings.own_platform, settings.run)
    assert len(found) == len(said)
    assert all(words in sentence for words, sentence in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("more", "times"), [({}, 1), ({"k3sExisting": "adopt", "gpuOperator": "false"}, 0)]
)
def test_a_preview_warns_before_the_first_up_alone(
    more: dict[str, Any], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning comes while there is no k3s of this stack. Later the user may have installed the
    controller there, and an adopted k3s may have it.
    """
    warned: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_, **__: warned.append(text))
    changes = {"gpusPerPod": 1, "topology": "jobset", **more}
    first = deploy("dev", tmp_path, changes)
    assert sum("needs JobSet" in text for text in warned) == times
    warned.clear()
    deploy("dev", tmp_path, changes, before=first)
    assert not any("needs JobSet" in text for text in warned)

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
NOT_THERE = "which a new k3s does not have"
MISSING: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"topology": "jobset"},
        [f"topology: 'jobset' cannot be used: it needs JobSet, {NOT_THERE}. Add jobset to contr"],
    ),
    ({"topology": "lws"}, ["Add lws to controllers (`pulumi config set --path 'controllers[0]' l"]),
    ({"topology": "mpijob", **KUEUE}, ["`pulumi config set --path 'controllers[1]' mpi-operator`"]),
    ({"topology": "jobset", "controllers": ["jobset"]}, []),
    ({"queue": "gpus"}, [f"queue: 'gpus' cannot be used: it needs Kueue, {NOT_THERE}."]),
    ({"queue": "gpus", **KUEUE}, []),
    ({"topology": "jobset", "queue": "gpus"}, ["controllers[0]' jobset", "controllers[1]' kueue"]),
    ({"queue": "gpus", **QUEUES}, ["queues.name: 'gpus' cannot be used: it needs Kueue"]),
    ({"topology": "none", **QUEUES}, ["(topology: none, and no queues) and install it there."]),
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


def test_a_missing_controller_is_refused_at_first(tmp_path: Path) -> None:
    """The refusal comes while there is no k3s of this stack. Later the user may have installed the
    controller there, and an adopted k3s may have it.
    """
    changes = {"gpusPerPod": 1, "topology": "jobset"}
    first = deploy("dev", tmp_path, {**changes, "topology": "none"})
    with pytest.raises(pulumi.RunError, match="  - topology: 'jobset' cannot be used: it needs"):
        deploy("dev", tmp_path, changes)
    deploy("dev", tmp_path, changes, before=first)
    deploy("dev", tmp_path, {**changes, "k3sExisting": "adopt"})


IN_QUEUE: dict[str, Any] = {"gpusPerPod": 1, **KUEUE, "queue": "team"}
WITH_CLASS = {"queues": {"name": "team", "priorities": {"urgent": 9}}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "queue: 'team' cannot be used: a new k3s has no LocalQueue, and queues makes none."),
        (QUEUES, "queue: 'team' cannot be used: a new k3s has no LocalQueue, and queues makes gpu"),
        (
            {**WITH_CLASS, "queuePriority": "high"},
            "queuePriority: 'high' cannot be used: a new k3s has no WorkloadPriorityClass, and "
            "queues makes urgent",
        ),
    ],
)
def test_a_missing_queue_is_refused_at_first(
    more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """A queue or a priority that a new k3s cannot have is refused before anything is registered.
    On a k3s that is there somebody may have made it.
    """
    first = deploy("dev", tmp_path, {**IN_QUEUE, "queue": ""})
    with pytest.raises(pulumi.RunError) as refused:
        deploy("dev", tmp_path, {**IN_QUEUE, **more})
    assert said in str(refused.value)
    assert "`pulumi config set --path queues." in str(refused.value)
    deploy("dev", tmp_path, {**IN_QUEUE, **more}, before=first)


def test_a_missing_namespace_is_refused_at_first(tmp_path: Path) -> None:
    """A new k3s has no namespace of others for `namespaceExisting: use`, except `default`."""
    first = deploy("dev", tmp_path)
    with pytest.raises(pulumi.RunError) as refused:
        deploy("dev", tmp_path, {"namespaceExisting": "use"})
    said = "namespaceExisting: 'use' cannot be used: a new k3s has no namespace disttrain."
    assert said in str(refused.value)
    deploy("dev", tmp_path, {"namespaceExisting": "use", "namespace": "default"})
    deploy("dev", tmp_path, {"namespaceExisting": "use"}, before=first)


def test_queues_of_the_platform_are_taken(tmp_path: Path) -> None:
    """The queue and the priorities that the platform makes are there when the run comes."""
    deploy("dev", tmp_path, {**IN_QUEUE, **WITH_CLASS, "queuePriority": "urgent"})

"""Messages about topology, queue, program and network give no false advice and show no secret."""

from typing import Any

import pulumi
import pytest

from infra.kinds import KINDS
from infra.settings import PlatformForRuns, Settings, parse_settings
from infra.settings.devices import Devices
from infra.settings.program_image import PlatformDelivery
from infra.settings.queues_topology import PlatformQueue
from infra.settings.secret import MAY_HOLD_SECRETS
from tests.unit.settings.reading import read, refusal
from tests.unit.stacks import raw_settings

QUEUE = {"topology": "indexed-job", "pods": 1, "gpusPerPod": 3, "queue": "gpus"}
NAMED = {"imageRepository": "registry.example.org/team/trainer"}


def read_elsewhere(changes: dict[str, Any]) -> Settings:
    """Return the settings of a run on the platform of stack `dev`, which has 3 GPUs on two
    machines.
    """
    return parse_settings(
        raw_settings("multipod", changes),
        (),
        "multipod",
        KINDS,
        PlatformForRuns(
            Devices("gpu", 3, False, 2),
            PlatformQueue("gpus", ()),
            PlatformDelivery("registry", NAMED["imageRepository"], {}),
        ),
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"topology": "volcano", "queuePriority": "high", "gpusPerPod": 1},
            "queuePriority: 'high' cannot be used: topology is volcano, which is in no queue of "
            "Kueue. Remove it, or set priorityClass.",
        ),
        (
            {"topology": "indexed-job"},
            "pods * gpusPerPod: 9 cannot be used: the platform has 3 GPUs (gpus), 3 pods want 3 "
            "each, and two nccl ranks cannot share one.",
        ),
        (
            {"queues": {"name": "gpus", "quota": {"memory": 64}}},
            "queues.quota.memory: 64 cannot be used: it is 64 bytes, and no pod could ever start "
            "with that. Write its unit, like 64Gi.",
        ),
        ({"queues": {"name": "gpus", "quota": {"memory": "500m"}}}, "it is 0.5 bytes, and no pod"),
        (
            {**QUEUE, "queues": {"name": "gpus", "quota": {"nvidia.com/gpu": 2}}},
            "queues.quota.nvidia.com/gpu: '2' cannot be used: the run of this stack is in queue "
            "gpus with 3 GPUs, and would wait for ever. Set at least 3, or lower pods * gpusPerPod",
        ),
        (
            {"program": {"command": ["a"], "files": ["a.py"]}},
            "program.files: ['a.py'] cannot be used: it is not a text. Set the path of a file or "
            "of a folder on this machine.",
        ),
        (
            {"program": {"command": ["a"], "build": {"context": "."}}},
            "program.build: {context: '.'} cannot be used: it is not a text. Set the path of a",
        ),
        (
            {"ttlSecondsAfterFinished": -1},
            "ttlSecondsAfterFinished: '-1' cannot be used: it is not a whole number of seconds "
            "from 60 to 2147483647.",
        ),
        (
            {"platform": "prod", "topology": "none"},
            "would make nothing. Set topology to one of single-pod, multi-pod, indexed-job, "
            "jobset, trainjob, pytorchjob, mpijob, volcano, lws, or remove platform.",
        ),
        (
            {"run": {"train": {"nodes_min": 2}}},
            "has one pod, which is always needed. Remove it, or set a topology of several pods, "
            "such as indexed-job.",
        ),
        (
            {"preset": "shakespeare-char", "run": {"train": {"max_steps": 5}}},
            "run.train.warmup_steps: 100 (from preset shakespeare-char) cannot be used: it is "
            "above run.train.max_steps, which is 5. Set at most 5, or a larger run.train.max_steps",
        ),
        (
            {"preset": "shakespeare-char", "run": {"model": {"n_head": 5}}},
            "run.model.n_head: 5 cannot be used: it does not divide run.model.n_embd, which is 384 "
            "(from preset shakespeare-char).",
        ),
        (
            {
                **NAMED,
                "imageDelivery": "registry",
                "imageDeliveryOptions": {"pullSecret": "My Secret"},
            },
            "imageDeliveryOptions.pullSecret: [secret] cannot be used: it is not the name of a "
            "Secret. Set one that `kubectl -n NAMESPACE get secret` lists.",
        ),
    ],
)
def test_message_says_why_and_what_to_do(changes: dict[str, Any], words: str) -> None:
    assert words in refusal(changes)


def test_sizes_that_can_be_are_taken() -> None:
    """Amounts that are possible are accepted: bytes without a unit, and a quota that is exactly
    enough for the run.
    """
    quota = {"memory": "68719476736", "cpu": "64", "nvidia.com/gpu": 3}
    assert read({**QUEUE, "queues": {"name": "gpus", "quota": quota}}).own_platform.queues
    assert read({**QUEUE, "queue": "other", "queues": {"name": "gpus", "quota": {"cpu": 1}}})
    named = {"imageDelivery": "registry", "imageDeliveryOptions": {"pullSecret": "team.pull"}}
    assert read({**NAMED, **named})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpusPerPod": 9}, "or set gpus of stack 'dev' to what its platform has."),
        ({"gpusPerPod": 9, "topology": "single-pod"}, "or set gpus of stack 'dev' to what its"),
    ],
)
def test_advice_names_the_stack_that_can_follow_it(changes: dict[str, Any], words: str) -> None:
    """The advice of a run on another stack's platform names that stack, because `gpus` can only be
    set there.
    """
    with pytest.raises(pulumi.RunError) as failure:
        read_elsewhere(changes)
    assert words in str(failure.value)


@pytest.mark.parametrize(
    "key", sorted({*MAY_HOLD_SECRETS} - {"datasetUrl", "podSecrets", "topologyOptions"})
)
def test_settings_of_the_platform_show_no_secret(key: str) -> None:
    """A setting of the platform in the stack of a run is refused without showing its value, even if
    the user has not encrypted it.
    """
    with pytest.raises(pulumi.RunError) as failure:
        read_elsewhere({key: "hunter2"})
    assert "hunter2" not in str(failure.value)
    assert key in str(failure.value)


@pytest.mark.parametrize("key", sorted(MAY_HOLD_SECRETS))
def test_key_with_a_typo_shows_no_secret(key: str) -> None:
    """A key that looks like one for secrets is refused with a suggestion, and its value is not
    shown.
    """
    message = refusal({f"{key[:-2]}{key[-1]}": "hunter2"})
    assert "hunter2" not in message
    assert f"(did you mean {key}?)" in message

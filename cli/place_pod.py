"""Describes the pod that a command starts: with the image and the volume of a stack.

The pod runs where the training pods of the stack may run.
"""

from collections.abc import Mapping, Sequence

from cli.stack_outputs import RunPlace, VolumePlace
from infra.kube.files.task_pod import TaskPod


def place_pod(
    place: RunPlace | VolumePlace,
    task: str,
    command: Sequence[str] = (),
    *,
    deadline_seconds: int,
    read_only: bool = True,
    environment: Mapping[str, str] | None = None,
) -> TaskPod:
    """Return the description of the pod. This function is pure.

    Args:
        place: the place of the volume.
        task: a word for the pod's name, its label and the name of its container.
        command: the command that the pod runs. Without one, the pod only waits, so that commands
            can be run in it.
        deadline_seconds: the longest time that the pod runs. It ends the pod even if the program
            that started the pod was killed.
        read_only: True if the pod cannot change the volume.
        environment: the environment variables of the pod.
    """
    waiting = ("python3", "-c", f"import time; time.sleep({deadline_seconds})")
    return TaskPod(
        task=task,
        owner=place.owner,
        namespace=place.namespace,
        image=place.image,
        command=tuple(command) or waiting,
        claim=place.claim,
        deadline_seconds=deadline_seconds,
        read_only=read_only,
        environment=dict(environment or {}),
        placement=dict(place.placement),
    )

"""The pod of a command: on the volume of a stack, with its image, where its training may run."""

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
    """What the pod is made of. Pure.

    Args:
        place: of the volume.
        task: a word for the pod's name, its label and its container.
        command: what it runs; without one it waits to be given commands.
        deadline_seconds: after that it ends, whatever became of the program that started it.
        read_only: whether it can change the volume.
        environment: its variables.
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

"""Describes the pods that commands start with the image and the volume of a stack.

They run where the training pods of the stack may run.
"""

from collections.abc import Mapping, Sequence

from cli.stack_outputs import RunPlace, VolumePlace
from infra.kube.api_server.api import Api
from infra.kube.files.task_pod import TaskPod
from infra.kube.objects import Json, is_running, part, parts
from infra.kube.say import last_line, shorten

BPE_VARIABLE = "DISTTRAIN_GPT2_RANKS"  # trainer/data/gpt2_tokenizer.py reads it


def stack_pod(
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


def trainer_variables(place: RunPlace | VolumePlace) -> dict[str, str]:
    """Return the environment variables of a pod that runs a command of the trainer.

    The file with GPT-2's BPE merge table comes from an air-gap bundle. Without it, tiktoken
    downloads the table. This function is pure.
    """
    bpe = {BPE_VARIABLE: place.bpe_file} if place.bpe_file else dict[str, str]()
    return {"HOME": "/tmp", **bpe}


def pod_is_running(api: Api, path: str) -> bool:
    """Whether the pod at this path of the API exists, and its phase is Running."""
    item = api.get(path)
    return item is not None and is_running(item)


def why_it_ended(pod: Json | None) -> str:
    """Say why a pod has ended: what Kubernetes says, and the last line of its log after an error.

    This function is pure.

    Args:
        pod: the pod, as the API server returned it; None if it is gone.
    """
    if pod is None:
        return "somebody has deleted it"
    status = part(pod, "status")
    words = [str(status.get(key) or "") for key in ("reason", "message")]
    for container in parts(status, "containerStatuses"):
        ended = part(container, "state", "terminated")
        if ended:
            words.append(f"{ended.get('reason') or 'Error'} (exit code {ended.get('exitCode')})")
            # Kubernetes copies the end of the log into this message (terminationMessagePolicy).
            words.append(last_line(str(ended["message"])) if ended.get("message") else "")
    return shorten(": ".join(filter(None, words))) or "Kubernetes gives no reason"

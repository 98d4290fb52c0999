"""What happened to this pod before its first process, by what the kubelet has left in it.

A process cannot ask Kubernetes about its pod without rights. But the kubelet writes files on its
way: first the volumes, such as the one of the run's ConfigMap; then, when the image is there, the
container's /etc/hosts; and then it has the container made. Their times are of the machine's clock.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from trainer.events.clock import process_age_seconds

CONFIG_FOLDER = Path("/etc/disttrain")
"""Where the pods of a run have their ConfigMap, whose files lie behind a link named `..data`."""
HOSTS = Path("/etc/hosts")


def pod_begin(config_folder: Path = CONFIG_FOLDER, hosts: Path = HOSTS) -> dict[str, Any]:
    """Values of the event `pod_started`.

    `age_seconds`: since this process began, always. Where the files tell: `container_seconds`
    before that, for which the container was being made; `image_seconds` before that, for the pod's
    network and the pull of its image; and `pod`, which is equal in all containers that follow each
    other in one pod, and in no other pod.
    """
    age, now = process_age_seconds(), time.time()
    try:
        volume, pod = (config_folder / "..data").lstat().st_mtime, _pod(config_folder)
        image = hosts.stat().st_mtime
    except OSError:  # not in a pod
        return {"age_seconds": age}
    image_seconds, container_seconds = image - volume, now - age - image
    if min(image_seconds, container_seconds) < 0:  # the clock was set, or the files are of others
        return {"age_seconds": age}
    return {
        "age_seconds": age,
        "container_seconds": round(container_seconds, 3),
        "image_seconds": round(image_seconds, 3),
        "pod": pod,
    }


def _pod(config_folder: Path) -> str:
    """The kubelet gives the volume's folder a name of the time and a random number."""
    return (config_folder / "..data").readlink().name.lstrip(".")

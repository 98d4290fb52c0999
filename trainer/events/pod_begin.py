"""Finds out how long the start of this pod took before its first process, from the kubelet's files.

A process cannot ask Kubernetes about its pod without rights. But the kubelet writes files while it
starts a pod. First it writes the volumes, such as that of the run's ConfigMap. When the image is
there, it writes the container's /etc/hosts, and then the container is made. The times of these
files are by the machine's clock.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from trainer.events.clock import process_age_seconds

CONFIG_FOLDER = Path("/etc/disttrain")
"""The folder of the run's ConfigMap in a pod; its files are behind a link named `..data`."""
HOSTS = Path("/etc/hosts")


def pod_begin(config_folder: Path = CONFIG_FOLDER, hosts: Path = HOSTS) -> dict[str, Any]:
    """Return values of the event `pod_started`.

    `age_seconds`, the age of this process, is always there. The others are there if the kubelet's
    files show them. `container_seconds`: how long the container was made before that.
    `image_seconds`: how long, before that, the pod's network and the pull of its image took. `pod`:
    a text that is the same in all containers that follow each other in one pod, and differs in
    other pods.
    """
    age, now = process_age_seconds(), time.time()
    try:
        volume, pod = (config_folder / "..data").lstat().st_mtime, _pod(config_folder)
        image = hosts.stat().st_mtime
    except OSError:  # not in a pod
        return {"age_seconds": age}
    image_seconds, container_seconds = image - volume, now - age - image
    if min(image_seconds, container_seconds) < 0:  # the clock was set, or others wrote the files
        return {"age_seconds": age}
    return {
        "age_seconds": age,
        "container_seconds": round(container_seconds, 3),
        "image_seconds": round(image_seconds, 3),
        "pod": pod,
    }


def _pod(config_folder: Path) -> str:
    """Return the name of the volume's folder, which the kubelet makes of time and random number."""
    return (config_folder / "..data").readlink().name.lstrip(".")

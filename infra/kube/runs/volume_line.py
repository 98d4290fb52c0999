"""Reads the line in the pods' logs that tells what the nodes found about their shared volume."""

import re

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import Json, container_of, name_of
from infra.kube.paths import log_path, pod_path

VOLUME = "volume: "
FIRST_BYTES = 1 << 18
MOST_PODS = 8
# trainer/volume/figures.py prints this line. A test compares the two.
_LINE = re.compile(rf"\[node \d+\] ({VOLUME}.*)")


def volume_line(api: Api, namespace: str, pods: list[Json]) -> str:
    """The line about the volume, such as `volume: 2 nodes see each other's new files: ...`.

    If the line was not found, the text says so and gives the reason.

    Args:
        api: the cluster.
        namespace: the namespace of the pods.
        pods: the pods of one training. The logs of the first MOST_PODS by name are read.
    """
    why = (
        "no pod that was asked has said it in its first lines (run.train.volume_timeout_seconds 0 "
        "leaves it out)"
    )
    for pod in sorted(pods, key=name_of)[:MOST_PODS]:
        path = log_path(pod_path(namespace, name_of(pod)))
        query = {"container": container_of(pod), "limitBytes": str(FIRST_BYTES)}
        try:
            text = api.text(path, query)
        except (ApiError, UnreachableError) as reason:
            why = str(reason)
            continue
        if line := last_volume_line(text):
            return line
    return f"{VOLUME}not seen: {why}; ./disttrain verify reads it from the volume"


def last_volume_line(log: str) -> str:
    """The last line about the volume in a log, without its node prefix; empty: there is none."""
    found = [match[1] for line in log.splitlines() if (match := _LINE.match(line))]
    return found[-1] if found else ""

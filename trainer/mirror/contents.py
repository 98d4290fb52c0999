"""What the mirror of one run holds, for every reader of it.

    <mirror>/<run_name>/run.yaml, metrics.jsonl                as they were at the newest copy
    <mirror>/<run_name>/checkpoints/step-00000100/             the same files as on the volume

A checkpoint without a manifest is not there.
"""

from __future__ import annotations

import re

from trainer.checkpoint import store
from trainer.mirror.place import DamagedError, Place

CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"
RESULTS = ("run.yaml", METRICS)
"""Files beside the checkpoints that the mirror has, too."""
_DIRECTORY = re.compile(r"step-(\d{8})")


def run_url(mirror: str, run_name: str) -> str:
    """The address of a run's folder; `mirror` is the setting `checkpoint.mirror`."""
    return f"{mirror.rstrip('/')}/{run_name}"


def remote_manifests(place: Place) -> dict[int, bytes]:
    """The manifests of the checkpoints that are whole in the mirror, by step.

    One that was changed in the store is empty here.

    Args:
        place: the folder of the run's checkpoints.

    Raises:
        StoreError: the store failed.
    """
    manifests: dict[int, bytes] = {}
    for name in place.names():
        if match := _DIRECTORY.fullmatch(name):
            try:
                manifest = place.read(f"{name}/{store.MANIFEST_FILE}")
            except DamagedError:
                manifest = b""
            if manifest is not None:
                manifests[int(match[1])] = manifest
    return manifests

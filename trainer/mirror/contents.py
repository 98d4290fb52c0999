"""What the mirror of one run holds, for every reader of it.

    <mirror>/<run_name>/run.yaml, metrics.jsonl                as they were at the newest copy
    <mirror>/<run_name>/tokenizer.json                         only where the data set has one
    <mirror>/<run_name>/checkpoints/step-00000100/             the same files as on the volume

A checkpoint without a manifest is not there.
"""

from __future__ import annotations

from trainer.checkpoint import store
from trainer.mirror.place import DamagedError, Place
from trainer.run_folder import METRICS_FILE, TOKENIZER_FILE

RESULTS = ("run.yaml", METRICS_FILE, TOKENIZER_FILE)
"""Files beside the checkpoints that the mirror has, too."""


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
        if (step := store.step_of(name)) is not None:
            try:
                manifest = place.read(f"{name}/{store.MANIFEST_FILE}")
            except DamagedError:
                manifest = b""
            if manifest is not None:
                manifests[step] = manifest
    return manifests

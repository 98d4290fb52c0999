"""Describes what the mirror of one run holds, for all code that reads the mirror.

    <mirror>/<run_name>/run.yaml, metrics.jsonl                as they were at the newest copy
    <mirror>/<run_name>/tokenizer.json                         only if the data set has one
    <mirror>/<run_name>/volume.json                            which volume fills it (owner.py)
    <mirror>/<run_name>/checkpoints/step-00000100/             the same files as on the volume

A checkpoint without a manifest does not count as a checkpoint. Those of a training that has ended,
because its run has started over, have an ended-manifest.json instead.
"""

from __future__ import annotations

from trainer.checkpoint import store
from trainer.mirror.remote_folder import DamagedError, RemoteFolder
from trainer.run_folder import METRICS_FILE, TOKENIZER_FILE

RESULTS = ("run.yaml", METRICS_FILE, TOKENIZER_FILE)
"""The files beside the checkpoints that are copied to the mirror too."""

OWNER_FILE = "volume.json"
ENDED_MANIFEST_FILE = "ended-manifest.json"
"""The name of a checkpoint's manifest after the run has started over (push.py)."""


def run_url(mirror: str, run_name: str) -> str:
    """Return the URL of a run's folder; `mirror` is the setting `checkpoint.mirror`."""
    return f"{mirror.rstrip('/')}/{run_name}"


def remote_manifests(mirror: RemoteFolder) -> dict[int, bytes]:
    """Return the manifests of the complete checkpoints in the mirror, by step.

    A manifest that was changed in the store is returned as empty.

    Args:
        mirror: The folder of the run's checkpoints.

    Raises:
        StoreError: the store failed.
    """
    manifests: dict[int, bytes] = {}
    for name in mirror.names():
        if (step := store.step_of(name)) is not None:
            try:
                manifest = mirror.read(f"{name}/{store.MANIFEST_FILE}")
            except DamagedError:
                manifest = b""
            if manifest is not None:
                manifests[step] = manifest
    return manifests

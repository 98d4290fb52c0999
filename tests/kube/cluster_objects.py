"""Makes cluster-wide objects for a test, and removes them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from infra.kube.paths import VOLUMES
from infra.labels import VOLUME_LABEL, content_hash
from tests.kube.lab import Json, Lab, wait_for


def phase_of(lab: Lab, path: str) -> str:
    return str(((lab.api.get(path) or {}).get("status") or {}).get("phase"))


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@contextmanager
def made(lab: Lab, collection: str, item: Json) -> Iterator[Json]:
    """Make a cluster-wide object for the block, and delete it, so that no other test sees it."""
    lab.api.create(collection, item)
    path = f"{collection}/{item['metadata']['name']}"
    if collection == VOLUMES:  # Otherwise its claim may be tried again only after 15 s.
        wait_for("the volume to be free", lambda: phase_of(lab, path) == "Available")
    try:
        yield item
    finally:
        lab.api.delete(path, {})


def volume(class_name: str, mode: str, **source: object) -> Json:
    """Return the manifest of a volume with the label by which this program's claims select it."""
    name = unique("volume")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {VOLUME_LABEL: content_hash(name)}},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": [mode],
            "storageClassName": class_name,
            "persistentVolumeReclaimPolicy": "Retain",
            **(source or {"hostPath": {"path": "/nowhere"}}),
        },
    }

"""Drift detection for the image: an input of its command that changes when the image has gone.

The command provider has no Read: it runs a command again only when an input of it differs from the
one in the stack's state. So the program asks the node, or the registry, for the image and makes the
answer an input, the import request. While the image is there, this is the label that its import (or
the annotation that its push) has left on it, and nothing differs. When it is gone, this is a new
request, and the command that runs for it labels the image with it.

A new request is kept in a file of the cache until the image is there. So `pulumi preview` and the
`pulumi up` after it have the same input, also where nobody answers yet.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from infra.image.containerd import Containerd, ContainerdError
from infra.image.plan import ImagePlan

VARIABLE = "IMAGE_IMPORT_REQUEST"
PATIENCE_SECONDS = 10
FOLDER = "import-requests"  # below the cache


def import_request(plan: ImagePlan, containerd: Containerd, cache: Path, node_name: str) -> str:
    """The request under which the image was imported, or will be if it is not there.

    Args:
        plan: the image.
        containerd: the node's.
        cache: folder that keeps new requests.
        node_name: tells nodes apart.

    Returns:
        Empty for an image that was imported by hand and so has no request.
    """

    def ask() -> str | None:
        try:
            return containerd.import_request(plan.reference)
        except ContainerdError:
            # No error of a preview: there may be no node yet. The command asks again, and fails.
            return None

    return noted_request([node_name, *containerd.ctr_words(), plan.reference], cache, ask)


def noted_request(place: list[str], cache: Path, ask: Callable[[], str | None]) -> str:
    """The request that is noted at a place, or the one under which the image will be brought.

    Args:
        place: where the image belongs; tells places apart.
        cache: folder that keeps new requests.
        ask: the request that is noted there, empty without one; None: the image is not there.
    """
    file = cache / FOLDER / hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]
    request = ask()
    if request is None:
        return _remembered(file)
    file.unlink(missing_ok=True)
    return request


def forget(cache: Path, request: str) -> None:
    """Remove the file of a request that was met, so that the next one is another."""
    for file in (cache / FOLDER).glob("*"):
        # the command of another node, which runs beside this one, may have removed it meanwhile
        with contextlib.suppress(FileNotFoundError):
            if request and file.read_text() == request:
                file.unlink()


def _remembered(file: Path) -> str:
    """The request in the file; a new one, the time, where there is no file yet."""
    request = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(request)
        # A link is made at once or not at all: nobody reads half a file.
        with contextlib.suppress(FileExistsError):
            os.link(fresh, file)
        fresh.unlink()
        return file.read_text()
    except OSError:  # without a cache, preview and update have different requests
        return request

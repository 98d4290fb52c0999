"""Makes `pulumi up` notice that the image has gone from a node or from a registry.

Pulumi's command provider has no Read: it runs a command again only if an input differs from the one
in the stack's state. So this program asks the node or the registry for the image, and makes the
answer an input of the command. The input is called the import request. While the image is there, it
is the label that the import (or the annotation that the push) has left on the image, and so it does
not change. If the image is gone, it is a new request. The command runs again, and labels the image
with the new request.

A new request is kept in a file of the cache until the image is there. So `pulumi preview` and the
`pulumi up` after it have the same input, even if the node or the registry does not answer yet.
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
FOLDER = "import-requests"  # a folder in the cache


def import_request(plan: ImagePlan, containerd: Containerd, cache: Path, node_name: str) -> str:
    """Return the request with which the image was imported, or a new one if it is not there.

    Args:
        plan: the image.
        containerd: the node's containerd.
        cache: folder that keeps new requests.
        node_name: a text that differs for each node.

    Returns:
        The request; empty if the image was imported by hand and so has none.
    """

    def ask() -> str | None:
        try:
            return containerd.import_request(plan.reference)
        except ContainerdError:
            # This is no error of a preview, because there may be no node yet. The command will ask
            # again, and fail if there is still no answer.
            return None

    return noted_request([node_name, *containerd.ctr_words(), plan.reference], cache, ask)


def noted_request(target: list[str], cache: Path, ask: Callable[[], str | None]) -> str:
    """Return the request that is noted for a target, or a new one if the image is not there.

    Args:
        target: words that differ for each node or registry where an image can be, and for each
            image.
        cache: folder that keeps new requests.
        ask: returns the request that is noted there, or an empty text if none is; None: the image
            is not there.
    """
    file = cache / FOLDER / hashlib.sha256(json.dumps(target).encode()).hexdigest()[:32]
    request = ask()
    if request is None:
        return _remembered(file)
    file.unlink(missing_ok=True)
    return request


def forget(cache: Path, request: str) -> None:
    """Remove the file of a request whose image is there, so that the next request is a new one."""
    for file in (cache / FOLDER).glob("*"):
        # The command of another node, which runs at the same time, may have removed the file.
        with contextlib.suppress(FileNotFoundError):
            if request and file.read_text() == request:
                file.unlink()


def _remembered(file: Path) -> str:
    """Return the request in the file. If there is no file, it is written with the time."""
    request = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(request)
        # A link is made at once or not at all, so that no process reads half a file.
        with contextlib.suppress(FileExistsError):
            os.link(fresh, file)
        fresh.unlink()
        return file.read_text()
    except OSError:  # Without a cache, preview and update have different requests.
        return request

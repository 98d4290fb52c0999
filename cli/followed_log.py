"""Reads a pod's log from its beginning to its end, even if connections are cut meanwhile."""

import math
import time
from collections.abc import Iterator

from infra.kube.api_server.answer import Answer
from infra.kube.api_server.api import NOT_NOW, Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.paths import log_path
from infra.kube.say import shorten

AWAY_SECONDS = 60.0  # how long the API server may be out of reach before reading is given up
BLOCK_BYTES = 65536


def followed_log(api: Api, path: str, container: str) -> Iterator[bytes]:
    """Yield what the pod prints as it comes, each byte once, until the pod has ended.

    After a cut connection the log is read again from its beginning, and the bytes that were
    yielded already are left out.

    Args:
        api: the cluster.
        path: the path of the pod in the API.
        container: the name of the container; a cluster may add containers of its own to a pod.

    Raises:
        ApiError: the API server refuses the log, or has it no more.
        UnreachableError: the connection was cut, and the API server stays out of reach for
            AWAY_SECONDS.
    """
    from urllib3.exceptions import HTTPError  # not at the top of the file: the import is slow

    known, end = 0, math.inf
    while True:
        passed = 0
        try:
            for block in _blocks(api, path, container):
                end = math.inf
                new = block[max(0, known - passed) :]
                passed += len(block)
                if new:
                    known = passed
                    yield new
            return
        except (HTTPError, UnreachableError) as error:
            end = min(end, time.monotonic() + AWAY_SECONDS)
            if time.monotonic() >= end:
                reason = shorten(str(error), 300)
                raise UnreachableError(f"the pod's log is cut off: {reason}") from None
        time.sleep(1)


def _blocks(api: Api, path: str, container: str) -> Iterator[bytes]:
    """Yield the log from its beginning, over one connection.

    Raises HTTPError, ApiError or UnreachableError.
    """
    response = api.stream(log_path(path), {"container": container, "follow": "true"})
    try:
        if response.status >= 300:
            answer = Answer(response.status, "", response.data.decode(errors="replace"))
            text = shorten(str(answer.body.get("message") or answer.text), 300)
            if answer.status in NOT_NOW:
                raise UnreachableError(f"{answer.status} {text}")
            raise ApiError(answer.status, text)
        yield from response.stream(BLOCK_BYTES)
    finally:
        response.close()

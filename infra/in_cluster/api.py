"""The API server as a pod reaches it, with the standard library alone.

The file goes into pods as it is.
"""

import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
OURS = "app.kubernetes.io%2Fname%3Ddisttrain"
REQUEST_SECONDS = 10.0
ENDED = ("Succeeded", "Failed")


class Api:
    """The API server, and the account that a pod has there.

    Attributes:
        namespace: of the pod.
        clock_ahead_seconds: by how much this machine's clock was ahead of the API server's at the
            last answer, at the least; None before the first one.
    """

    def __init__(self, base: str, account: Path, context: ssl.SSLContext | None = None) -> None:
        """`base`: such as `https://10.43.0.1:443`; `account`: the folder with the pod's token."""
        self._base, self._account = f"{base}/api/v1", account
        self.namespace = (account / "namespace").read_text().strip()
        self.clock_ahead_seconds: float | None = None
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def ask(self, method: str, path: str, body: Json | None = None, type_: str = "json") -> Any:
        """Send a request; returns what the answer holds.

        Raises:
            OSError: there was no answer, or it was a refusal (urllib.error.HTTPError).
        """
        request = urllib.request.Request(
            f"{self._base}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                # The kubelet renews the token's file.
                "Authorization": f"Bearer {(self._account / 'token').read_text().strip()}",
                "Content-Type": f"application/{type_}",
            },
        )
        before = time.time()
        with self._opener.open(request, timeout=REQUEST_SECONDS) as answer:
            self._compare_clocks(before, answer)
            try:
                return json.load(answer)
            except (HTTPException, ValueError) as cut:
                raise OSError(f"the answer of the API server is not whole ({cut!r})") from cut

    def _compare_clocks(self, before: float, answer: HTTPResponse) -> None:
        try:
            server = parsedate_to_datetime(answer.headers["Date"]).timestamp()
        except (TypeError, ValueError):
            return  # a proxy between has left it out
        self.clock_ahead_seconds = clock_ahead(before, server, time.time())


def clock_ahead(before: float, server: float, after: float) -> float:
    """How far a clock is ahead at the least; negative: behind.

    Args:
        before, after: what it showed around a question, in seconds.
        server: the other clock in between, cut to whole seconds.
    """
    if before > server + 1:
        return before - server - 1
    return min(0.0, after - server)


def api_of_the_pod() -> Api:
    """The API server that the kubelet tells every pod of."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    return Api(f"https://{host}:{port}", ACCOUNT, context)


def say(text: str) -> None:
    """A line of the pod's log."""
    print(text, flush=True)


def unless(codes: Collection[int], ask: Callable[[], object]) -> bool:
    """Whether it was done; not where the answer is one of these refusals.

    Raises:
        OSError: there was no answer, or another refusal.
    """
    try:
        ask()
    except urllib.error.HTTPError as refused:
        if refused.code not in codes:
            raise
        return False
    return True


class Trouble:
    """Lets a program go on while the API server is away, and says each trouble once."""

    def __init__(self) -> None:
        self._said = ""

    @contextmanager
    def said(self) -> Iterator[None]:
        """Around what asks the API server: an OSError in it is said and ends there."""
        try:
            yield
            self._said = ""
        except OSError as error:
            if self._said != str(error):
                self._said = str(error)
                say(f"the API server could not be asked: {self._said}; trying again")

"""A small client for the API server in a pod, which uses only the standard library.

The file goes into pods unchanged.
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
    """A client of the API server that uses the service account of its pod.

    Attributes:
        namespace: the namespace of the pod.
        clock_ahead_seconds: how far this machine's clock was at least ahead of the API server's
            clock at the last answer; None before the first answer.
    """

    def __init__(self, base: str, account: Path, context: ssl.SSLContext | None = None) -> None:
        """Read the pod's namespace.

        Args:
            base: the address of the API server, such as `https://10.43.0.1:443`.
            account: the folder with the token of the pod's service account.
            context: the certificates to trust; None for those of the system.
        """
        self._base, self._account = f"{base}/api/v1", account
        self.namespace = (account / "namespace").read_text().strip()
        self.clock_ahead_seconds: float | None = None
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def ask(self, method: str, path: str, body: Json | None = None, type_: str = "json") -> Any:
        """Send a request, and return the JSON of the answer.

        Raises:
            OSError: There was no answer, or the request was refused (urllib.error.HTTPError).
        """
        request = urllib.request.Request(
            f"{self._base}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                # The file is read each time, because the kubelet renews the token.
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
            return  # a proxy on the way has removed the header
        self.clock_ahead_seconds = clock_ahead(before, server, time.time())


def clock_ahead(before: float, server: float, after: float) -> float:
    """How far this machine's clock is at least ahead of the server's; negative if it is behind.

    Args:
        before, after: the time of this machine's clock before and after a request, in seconds.
        server: the time of the server's clock in between, rounded down to whole seconds.
    """
    if before > server + 1:
        return before - server - 1
    return min(0.0, after - server)


def api_of_the_pod() -> Api:
    """A client of the API server whose address the kubelet puts into every pod's variables."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    return Api(f"https://{host}:{port}", ACCOUNT, context)


def say(text: str) -> None:
    """Write a line into the pod's log."""
    print(text, flush=True)


def unless(codes: Collection[int], ask: Callable[[], object]) -> bool:
    """Send a request, and return False if it is refused with one of these HTTP status codes.

    Args:
        codes: the status codes of the refusals that are expected.
        ask: sends the request.

    Raises:
        OSError: There was no answer, or the request was refused for another reason.
    """
    try:
        ask()
    except urllib.error.HTTPError as refused:
        if refused.code not in codes:
            raise
        return False
    return True


class Trouble:
    """Lets a program continue while the API server does not answer, and logs each problem once."""

    def __init__(self) -> None:
        self._said = ""

    @contextmanager
    def said(self) -> Iterator[None]:
        """A context for requests to the API server: an OSError in it is logged and not raised."""
        try:
            yield
            self._said = ""
        except OSError as error:
            if self._said != str(error):
                self._said = str(error)
                say(f"the API server could not be asked: {self._said}; trying again")

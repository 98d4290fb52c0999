"""Sends JSON requests to the API server, and tries again while the server does not answer."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Protocol

from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import ANSWER_SECONDS, CONNECT_SECONDS, Answer
from infra.kube.errors import ApiError, PluginError, UnreachableError
from infra.kube.objects import Json, parts
from infra.kube.say import say, shorten

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse
    from websocket import WebSocket

    from infra.kube.api_server.client import Client
    from infra.kube.api_server.quick_client import QuickClient

MERGE = "application/merge-patch+json"
PATIENCE_SECONDS = 60.0
CLIENT_SECONDS = 300.0  # after that, credential plugins are asked again
UNAUTHORIZED = 401
NOT_NOW = (408, 429, 500, 502, 503, 504)


class Requests(Protocol):
    """A client that can send one request."""

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: object,
        content_type: str,
        seconds: float | None = None,
    ) -> Answer:
        """Send a request. Raises OSError: no answer came, or none within `seconds` if given."""
        ...


class Api:
    """The API server of one cluster. A task makes one such object for each of its threads.

    Args:
        access: how the cluster is reached.
        patience_seconds: for how long a request is tried again while the server does not answer.
    """

    def __init__(self, access: Access, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.access = access
        self.patience_seconds = patience_seconds
        self._client: Client | None = None
        self._requests: Requests | None = None
        self._quick: QuickClient | None = None
        self._is_common = True  # The quick client can use this kubeconfig.
        self._has_answered = False
        self._made_at = 0.0
        self._ahead_seconds = 0.0
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def use(self, requests: Requests) -> None:
        """Send all requests with this client."""
        self._requests = requests

    @property
    def client(self) -> "Client":
        """The official client. It is made anew after a failure and after CLIENT_SECONDS."""
        # It is imported here, because the import takes longer than most tasks.
        from infra.kube.api_server.client import Client

        self._forget_old_credentials()
        if self._client is None:
            self._client = Client(self.access)
        return self._client

    def read_kubeconfig(self) -> None:
        """Read the kubeconfig now, instead of at the first request.

        Raises:
            ValueError: the kubeconfig cannot be used.
        """
        self._sender()

    def stream(
        self,
        path: str,
        query: dict[str, str],
        headers: Mapping[str, str] | None = None,
        silence_seconds: float | None = None,
    ) -> "BaseHTTPResponse":
        """Send a GET whose body the caller reads while it arrives; see `Client.stream`."""
        with self._new_client_after_failure():
            return self.client.stream(path, query, headers, silence_seconds)

    def websocket(self, path: str, query: list[tuple[str, str]]) -> "WebSocket":
        """Open a websocket to a subresource; see `Client.websocket`."""
        with self._new_client_after_failure():
            return self.client.websocket(path, query)

    @contextmanager
    def _new_client_after_failure(self) -> Iterator[None]:
        """Drop the clients after an error, so that the next request makes a new one.

        The new client asks the credential plugin again, which may open a tunnel to the server.
        """
        try:
            yield
        except PluginError as failed:
            raise self._after_plugin(failed) from None
        except Exception:
            self._forget_clients()
            raise

    def _after_plugin(self, failed: PluginError) -> Exception:
        """The error to raise if the credential plugin has failed.

        If the server has answered before, the plugin may have failed because the network was gone
        for a moment. Then the error is an UnreachableError, so the request is tried again.
        """
        self._forget_clients()
        return UnreachableError(str(failed)) if self._has_answered else failed

    def _sender(self) -> Requests:
        """The client for the next request.

        It is the quick client, unless that cannot use the kubeconfig or the official client has
        been made already.
        """
        from infra.kube.api_server.quick_client import QuickClient, UnsupportedError

        if self._requests:
            return self._requests
        self._forget_old_credentials()
        if self._quick:
            return self._quick
        if self._client is None and self._is_common:
            try:
                self._quick = QuickClient(self.access, ANSWER_SECONDS, CONNECT_SECONDS)
            except PluginError:
                if not (sys.stdin.isatty() and sys.stdout.isatty()):
                    raise
                self._is_common = False  # With the official client, the plugin can ask its user.
            except (UnsupportedError, OSError, ValueError):  # The official client reports it.
                self._is_common = False
            else:
                return self._quick
        return self.client

    def _forget_old_credentials(self) -> None:
        now = time.monotonic()
        if now - self._made_at > CLIENT_SECONDS:
            self._forget_clients()
            self._made_at = now

    def _forget_clients(self) -> None:
        if self._quick:
            self._quick.close()
        self._client = self._quick = None

    def now(self) -> datetime:
        """The time by the clock of the API server, which is the same for all of its clients."""
        return datetime.fromtimestamp(time.time() + self._ahead_seconds, UTC)

    def get(self, path: str) -> Json | None:
        """The object at a path; None: there is none."""
        return self._found("GET", path)

    def list(self, path: str, selector: str = "") -> list[Json]:
        """The objects of a collection. If `selector` is given, only those with these labels."""
        query = {"labelSelector": selector} if selector else {}
        return parts(self.request("GET", path, query=query), "items")

    def text(self, path: str, query: dict[str, str], seconds: float | None = None) -> str:
        """The text of an answer that is not JSON, such as a pod's log. It is asked for only once.

        Args:
            path: the path of the text.
            query: the query parameters.
            seconds: the longest wait for the answer; None: the usual limit.

        Raises:
            ApiError: the server refuses the request.
            UnreachableError: the server gives no answer.
        """
        return self._once("GET", path, None, query, "text/plain", seconds).text

    def create(self, path: str, body: Json) -> Json:
        """Make an object. Raises ApiError 409: an object of this name exists."""
        return self.request("POST", path, body)

    def replace(self, path: str, body: Json) -> Json:
        """Write an object. Raises ApiError 409: the object has changed since it was read."""
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Json) -> Json | None:
        """Apply a JSON merge patch to an object; None: the object is gone."""
        return self._found("PATCH", path, body, MERGE)

    def delete(self, path: str, options: Json) -> bool:
        """Delete an object; False: there is none. `options` are Kubernetes' DeleteOptions."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        return self._found("DELETE", path, body) is not None

    def path(self, api_version: str, kind: str, namespace: str, name: str = "") -> str:
        """The path of an object, or of its collection if no name is given.

        Raises:
            ApiError: with status 404: the cluster does not know this kind.
        """
        group = f"/api/{api_version}" if api_version == "v1" else f"/apis/{api_version}"
        if (api_version, kind) not in self._plurals:
            for found in parts(self.request("GET", group), "resources"):
                if "/" not in found["name"]:
                    entry = (str(found["name"]), bool(found["namespaced"]))
                    self._plurals[(api_version, str(found["kind"]))] = entry
        if (api_version, kind) not in self._plurals:
            raise ApiError(404, f"the cluster knows no kind {kind} in {api_version}")
        plural, namespaced = self._plurals[(api_version, kind)]
        inside = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{group}{inside}/{plural}" + (f"/{name}" if name else "")

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send a request, and try again until the server answers or `patience_seconds` are over.

        Raises:
            ApiError: the server refuses the request.
            UnreachableError: the server gives no usable answer within `patience_seconds`.
        """
        end, told = time.monotonic() + self.patience_seconds, False
        while True:
            try:
                answer = self._once(method, path, body, query or {}, content_type)
                found = answer.body
                if not found and not answer.is_json:  # parsed again only if there is no object
                    raise UnreachableError(
                        f"the answer to {method} {path} is no JSON but "
                        f"{shorten(answer.text, 80) or 'empty'}: a proxy may have sent it"
                    )
                return found
            except UnreachableError as reason:
                if time.monotonic() >= end:
                    raise
                if not told:
                    # It goes to stderr, because what a command prints may be JSON.
                    say(f"the API server does not answer: {reason}; trying again", sys.stderr)
                    told = True
                time.sleep(1)

    def _once(
        self,
        method: str,
        path: str,
        body: object,
        query: dict[str, str],
        content_type: str,
        seconds: float | None = None,
    ) -> Answer:
        def send() -> Answer:
            return self._sender().request(method, path, query, body, content_type, seconds)

        self._forget_old_credentials()
        is_older = bool(self._quick or self._client)
        answer = self._answer(send)
        if answer.status == UNAUTHORIZED and is_older:
            self._forget_clients()  # The token has expired; a credential plugin may have a new one.
            answer = self._answer(send)
        if answer.status < 300:
            return answer
        text = shorten(str(answer.body.get("message") or answer.text or answer.status))
        if answer.status in NOT_NOW:
            raise UnreachableError(f"{answer.status} {text}")
        if answer.status == UNAUTHORIZED:
            self._forget_clients()
            text = (
                f"the cluster does not accept the kubeconfig's credentials ({text}). They may have "
                "expired: log in again, or have the kubeconfig written anew"
            )
        raise ApiError(answer.status, text)

    def _answer(self, send: Callable[[], Answer]) -> Answer:
        try:
            answer = send()
        except PluginError as failed:
            raise self._after_plugin(failed) from None
        except OSError as error:
            self._forget_clients()
            raise UnreachableError(shorten(str(error), 300)) from None
        self._has_answered = True
        self._note_clock(answer)
        return answer

    def _found(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Json | None:
        try:
            return self.request(method, path, body, content_type=content_type)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _note_clock(self, answer: Answer) -> None:
        if answer.date:
            self._ahead_seconds = parsedate_to_datetime(answer.date).timestamp() - time.time()

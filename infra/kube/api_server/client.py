"""Sends requests through the official Kubernetes client, set up from a kubeconfig.

Only its reading of kubeconfigs, its authentication and its connections are used. Objects stay JSON,
because importing the client's typed models takes longer than a task.
"""
# The official client has no type annotations.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

import json
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import certifi
import requests.utils
import urllib3
from kubernetes import client as official
from kubernetes import config as official_config
from kubernetes.stream import ws_client
from websocket import WebSocket, WebSocketBadStatusException

from infra.kube.api_server.access import Access, plugin_command
from infra.kube.api_server.answer import ANSWER_SECONDS, CONNECT_SECONDS, Answer
from infra.kube.api_server.impersonation import impersonation
from infra.kube.api_server.quick_client import MOST_OF_PLUGIN, plugin_failed
from infra.kube.errors import FORBIDDEN, ApiError, KubeconfigError, PluginError
from infra.kube.objects import Json, part, parts
from infra.kube.say import shorten

OF_KUBECONFIG = "proxy-url of the kubeconfig"


class Client:
    """Connections to one API server."""

    def __init__(self, access: Access) -> None:
        """Read the kubeconfig and run its credential plugin, if it has one.

        Raises:
            KubeconfigError: the kubeconfig or its context cannot be used.
            PluginError: the credential plugin of the kubeconfig has failed.
        """
        configuration: Any = official.Configuration()
        content = access.content()  # raises an error that says what is wrong
        common: dict[str, Any] = {
            "context": access.context or None,
            "client_configuration": configuration,
            "persist_config": False,
        }
        words = _Words()
        logging.getLogger().addHandler(words)
        try:
            if access.kubeconfig_path:  # Paths in the file are relative to its folder.
                path = str(Path(access.kubeconfig_path).expanduser())
                official_config.load_kube_config(config_file=path, **common)
            else:
                official_config.load_kube_config_from_dict(content, **common)
        except official_config.ConfigException as error:
            raise KubeconfigError(f"the kubeconfig cannot be used: {error}") from None
        finally:
            logging.getLogger().removeHandler(words)
        if words.said and (command := plugin_command(content, access.context)):
            raise PluginError(plugin_failed(command, shorten(" ".join(words.said), MOST_OF_PLUGIN)))
        self.host = str(configuration.host).rstrip("/")
        configuration.proxy, self._named_by = _proxy(self.host, content, access.context)
        configuration.no_proxy = None
        self._configuration = configuration
        self._api: Any = official.ApiClient(configuration)
        self._impersonation = impersonation(content, access.context)

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
        headers = {"Accept": "application/json, */*", "Content-Type": content_type}
        try:
            response = self._pool.request(
                method,
                self._url(path) + (f"?{urlencode(query)}" if query else ""),
                body=None if body is None else json.dumps(body),
                headers=self._authorised(headers),
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds or ANSWER_SECONDS),
                retries=False,
            )
        except urllib3.exceptions.ProxyError as error:
            raise OSError(self._proxy_fails(error.original_error)) from None
        except urllib3.exceptions.HTTPError as error:
            raise OSError(str(error)) from None
        text = response.data.decode(errors="replace")  # a pod's log may hold any bytes
        return Answer(response.status, response.headers.get("Date", ""), text)

    def stream(
        self,
        path: str,
        query: dict[str, str],
        headers: Mapping[str, str] | None = None,
        silence_seconds: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send a GET whose body the caller reads while it arrives.

        Args:
            path: the path below the server's address.
            query: the query parameters.
            headers: further headers of the request.
            silence_seconds: the longest time without a byte; None: there is no limit.

        Raises:
            urllib3.exceptions.HTTPError: there is no answer. Reading the body may raise it too.
        """
        return self._pool.request(
            "GET",
            self._url(path),
            fields=query,
            headers=self._authorised({"Accept": "*/*", **(headers or {})}),
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=silence_seconds),
            retries=False,
            preload_content=False,
        )

    def websocket(self, path: str, query: list[tuple[str, str]]) -> WebSocket:
        """Open a websocket to a subresource such as `exec`.

        Raises:
            ApiError: with status 403: these credentials may not use the subresource.
            WebSocketException, OSError: there is no answer, or another try may succeed.
        """
        # The official `create_websocket` does the same, but sets no time limit for the answer.
        url = ws_client.get_websocket_url(self._url(path), query)
        headers = self._authorised({"sec-websocket-protocol": "v4.channel.k8s.io"})
        lines = [f"{name}: {value}" for name, value in headers.iteritems()]
        options: Any = {"header": lines, "timeout": ANSWER_SECONDS}
        options = ws_client.websocket_proxycare(options, self._configuration, url, headers)
        socket = WebSocket(sslopt=_tls_options(self._configuration))
        try:
            socket.connect(url, **options)
        except WebSocketBadStatusException as refused:
            raise _refusal(refused) from None
        return socket

    def _proxy_fails(self, reason: Exception) -> str:
        """Say that the proxy does not lead to the server. The proxy's address may hold a login."""
        host = urlsplit(self.host).hostname
        said = f"the proxy of {self._named_by} does not connect to {host} ({reason})"
        if self._named_by == OF_KUBECONFIG:
            return said
        return f"{said}. If it is reached without a proxy, put {host} into the variable NO_PROXY"

    @property
    def _pool(self) -> urllib3.PoolManager:
        return self._api.rest_client.pool_manager

    def _url(self, path: str) -> str:
        return f"{self.host}{path}"

    def _authorised(self, headers: dict[str, str]) -> urllib3.HTTPHeaderDict:
        self._api.update_params_for_auth(headers, [], ["BearerToken"])
        found = urllib3.HTTPHeaderDict(headers)
        for name, value in self._impersonation:
            found.add(name, value)
        return found


class _Words(logging.Handler):
    """Collects the official client's messages about a failed login.

    The official client only logs these messages, and would go on without a login.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.said.append(record.getMessage().removeprefix("exec: "))


def _refusal(refused: WebSocketBadStatusException) -> ApiError | OSError:
    """The error for a refused websocket.

    The text of the library's own error begins with HTTP headers, so it is not shown to users.
    """
    answer = Answer(refused.status_code, "", (refused.resp_body or b"").decode(errors="replace"))
    message = str(answer.body.get("message") or "")
    if answer.status == FORBIDDEN and message:
        return ApiError(answer.status, shorten(message))
    return OSError(f"{answer.status} {message or refused.status_message}")


def _tls_options(configuration: Any) -> dict[str, Any]:
    """The TLS options that the official client would use for a websocket."""
    options: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE}
    if configuration.verify_ssl:
        authority = configuration.ssl_ca_cert or certifi.where()
        options = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": authority}
        if configuration.assert_hostname is not None:
            options["check_hostname"] = configuration.assert_hostname
    given = {
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "server_hostname": configuration.tls_server_name,
    }
    return options | {name: value for name, value in given.items() if value}


def _proxy(server: str, config: Json, context: str) -> tuple[str | None, str]:
    """The proxy for the server, and who names it: the kubeconfig, or else the environment.

    The environment's proxy is not used for a server on this machine.
    """
    name = context or config.get("current-context")
    contexts = {entry.get("name"): part(entry, "context") for entry in parts(config, "contexts")}
    clusters = {entry.get("name"): part(entry, "cluster") for entry in parts(config, "clusters")}
    cluster = clusters.get(contexts.get(name, {}).get("cluster"), {})
    if cluster.get("proxy-url"):
        return str(cluster["proxy-url"]), OF_KUBECONFIG
    host = urlsplit(server).hostname or ""
    if host == "localhost" or host == "::1" or host.startswith("127."):
        return None, ""
    found = requests.utils.get_environ_proxies(server)
    if proxy := found.get(urlsplit(server).scheme):
        return proxy, "the variable HTTPS_PROXY"
    return found.get("all"), "the variable ALL_PROXY"

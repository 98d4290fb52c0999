"""Sends requests with only the standard library, for the common kinds of kubeconfig.

Importing the official client takes a quarter of a second, much longer than a request. The Pulumi
program asks the cluster at each preview, and `pulumi up` starts ten programs one after the other
that ask it. If a kubeconfig needs something that this file cannot do (proxies, other ways to log
in), it raises UnsupportedError, and the caller uses the official client. Streams need the official
client too.
"""

import base64
import http.client
import json
import os
import select
import socket
import ssl
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import cast
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import Answer
from infra.kube.errors import PluginError
from infra.kube.objects import Json, part, parts

CLUSTER_KEYS = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "tls-server-name",
}
USER_KEYS = {
    "token",
    "exec",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
}
PLUGIN_SECONDS = 15
MOST_OF_PLUGIN = 400  # how many characters of the end of its message are kept


def plugin_failed(command: str, said: str) -> str:
    """The message about a credential plugin that has failed.

    Args:
        command: the program of the plugin.
        said: the plugin's own message.
    """
    return f"the program that the kubeconfig logs in with ({command}) has failed: {said}"


class UnsupportedError(Exception):
    """Only the official client can use the kubeconfig."""


class QuickClient:
    """A client of one API server.

    Args:
        access: how the server is reached.
        seconds: the longest wait for an answer.
        connect_seconds: the longest wait for a connection; 0: the same as for an answer.

    Raises:
        UnsupportedError: only the official client can use the kubeconfig.
        ValueError: the kubeconfig cannot be read.
        PluginError: the credential plugin of the kubeconfig has failed.
        OSError: a file or a credential plugin that the kubeconfig names is missing.
    """

    def __init__(self, access: Access, seconds: float, connect_seconds: float = 0) -> None:
        config = access.content()
        self._folder = Path(access.kubeconfig_path).expanduser().parent
        context = _named(config, "context", access.context or str(config.get("current-context")))
        cluster = _named(config, "cluster", str(context.get("cluster")))
        user = _named(config, "user", str(context.get("user")))
        if cluster.keys() - CLUSTER_KEYS or user.keys() - USER_KEYS:
            raise UnsupportedError
        server = urlsplit(str(cluster.get("server")))
        if server.scheme != "https" or not server.hostname:
            raise UnsupportedError
        loopback = server.hostname in ("localhost", "::1") or server.hostname.startswith("127.")
        if "https" in getproxies() and not loopback and not proxy_bypass(server.hostname):
            raise UnsupportedError
        if "exec" in user:
            plugin = part(user, "exec")
            if plugin.get("provideClusterInfo"):
                raise UnsupportedError
            user = self._ask_plugin(plugin)
        self._token = str(user.get("token") or "")
        self._prefix = server.path.rstrip("/")
        tls = self._tls(cluster, user)
        self._seconds = seconds
        self._connection = _Connection(
            (server.hostname, server.port or 443),
            connect_seconds or seconds,
            tls,
            str(cluster.get("tls-server-name") or server.hostname),
        )
        weakref.finalize(self, self._connection.close)  # Tasks do not close it themselves.

    def close(self) -> None:
        """Close the connection to the server."""
        self._connection.close()

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
        data = None if body is None else json.dumps(body)
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        where = f"{self._prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            self._connect().settimeout(seconds or self._seconds)
            self._connection.request(method, where, data, headers)
            response = self._connection.getresponse()
            text = response.read().decode(errors="replace")  # a pod's log may hold any bytes
            return Answer(response.status, response.headers.get("Date", ""), text)
        # UnicodeError: the name of the server or the token has a letter that cannot be sent.
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            self._connection.close()  # http.client would refuse another request on it.
            raise OSError(str(error) or type(error).__name__) from None

    def _connect(self) -> socket.socket:
        """The open connection. A new one is made if the server has closed the old one."""
        if self._connection.sock and _has_ended(self._connection.sock):
            self._connection.close()
        if not self._connection.sock:
            self._connection.connect()
        return self._connection.sock

    def _tls(self, cluster: Json, user: Json) -> ssl.SSLContext:
        authority = self._bytes(cluster, "certificate-authority")
        # Comments between certificates may have any letters, and Python's ssl takes only ASCII.
        letters = authority.decode("latin-1").encode("ascii", "replace").decode()
        context = ssl.create_default_context(cadata=letters or None)
        # Newer versions of Python demand more of a CA certificate than kubectl does. The CAs of
        # some clusters do not meet that.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        certificate = self._bytes(user, "client-certificate")
        if certificate:
            # The ssl module can read a key only from a file. Nobody else can read this file, and it
            # is removed at once.
            with tempfile.NamedTemporaryFile(prefix="disttrain-") as file:
                file.write(certificate + b"\n" + self._bytes(user, "client-key"))
                file.flush()
                context.load_cert_chain(file.name)
        return context

    def _bytes(self, section: Json, key: str) -> bytes:
        if section.get(f"{key}-data"):
            return base64.b64decode(str(section[f"{key}-data"]))
        return (self._folder / str(section[key])).read_bytes() if section.get(key) else b""

    def _ask_plugin(self, plugin: Json) -> Json:
        command = str(plugin["command"])
        if os.sep in command:  # kubectl too takes it relative to the kubeconfig's folder.
            command = str(self._folder.absolute() / command)
        words = [str(word) for word in cast(list[object], plugin.get("args") or [])]
        info: Json = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {}}
        extra = {
            str(entry["name"]): str(entry.get("value") or "") for entry in parts(plugin, "env")
        }
        try:
            done = subprocess.run(
                [command, *words],
                env={**os.environ, **extra, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PLUGIN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OSError(f"the credential plugin gave no answer in {PLUGIN_SECONDS} s") from None
        if done.returncode:
            said = done.stderr.strip()[-MOST_OF_PLUGIN:] or f"exit code {done.returncode}"
            raise PluginError(plugin_failed(command, said))
        status = part(json.loads(done.stdout), "status")
        user: Json = {"token": status.get("token")}
        for key, name in (("certificate", "Certificate"), ("key", "Key")):
            text = str(status.get(f"client{name}Data") or "")
            user[f"client-{key}-data"] = base64.b64encode(text.encode()).decode()
        return user


class _Connection(http.client.HTTPSConnection):
    """An HTTPS connection to a server whose certificate may have another name than its address."""

    def __init__(
        self, address: tuple[str, int], seconds: float, tls: ssl.SSLContext, name: str
    ) -> None:
        super().__init__(*address, timeout=seconds, context=tls)
        self._tls, self._name = tls, name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def _has_ended(open_socket: socket.socket) -> bool:
    """Whether the server has ended an idle connection: then the socket has something to read."""
    poll = select.poll()
    poll.register(open_socket, select.POLLIN)
    return bool(poll.poll(0))


def _named(config: Json, kind: str, name: str) -> Json:
    for entry in parts(config, f"{kind}s"):
        if entry.get("name") == name:
            return part(entry, kind)
    raise ValueError(f"the kubeconfig has no {kind} {name!r}")

"""Questions with the standard library alone, for the common kinds of kubeconfig.

The official client takes several times as long to import as a request takes, and the Pulumi
program looks at the cluster at each preview. What this file does not know (proxies, other ways to
log in), it leaves to the official client by UnsupportedError.
"""

import base64
import http.client
import json
import os
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import cast
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from infra.kube.access import Access
from infra.kube.answer import Answer
from infra.kube.objects import Json, part, parts

CLUSTER_KEYS = {"server", "certificate-authority", "certificate-authority-data"}
USER_KEYS = {
    "token",
    "exec",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
}
PLUGIN_SECONDS = 15
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubject"


class UnsupportedError(Exception):
    """The kubeconfig needs the official client."""


class QuickClient:
    """One API server.

    Args:
        access: how it is reached.
        seconds: for each step of a connection and for an answer.

    Raises:
        UnsupportedError: see the module.
        ValueError: the kubeconfig cannot be read.
        OSError: a file or a credential plugin that it names is missing.
    """

    def __init__(self, access: Access, seconds: float) -> None:
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
            user = self._ask_plugin(part(user, "exec"))
        self._token = str(user.get("token") or "")
        self._prefix = server.path.rstrip("/")
        tls = self._tls(cluster, user)
        self._connection = http.client.HTTPSConnection(
            server.hostname, server.port or 443, timeout=seconds, context=tls
        )

    def close(self) -> None:
        """Close the connection."""
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
        """A GET, or a POST which makes no object: about rights, or never carried out (dryRun)."""
        asks = path.startswith(REVIEWS) or query.get("dryRun") == "All"
        assert method == "GET" or (method == "POST" and asks), "this client only looks"
        assert seconds is None, "each of its answers has the time that the client was made with"
        headers = {"Accept": "application/json", "Content-Type": content_type}
        data = None if body is None else json.dumps(body)
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        where = f"{self._prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            self._connection.request(method, where, data, headers)
            response = self._connection.getresponse()
            return Answer(response.status, response.headers["Date"], response.read().decode())
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from None

    def _tls(self, cluster: Json, user: Json) -> ssl.SSLContext:
        authority = self._bytes(cluster, "certificate-authority")
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        certificate = self._bytes(user, "client-certificate")
        if certificate:
            # the ssl module reads a key from a file alone; this one is for us alone, and removed
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
        words = [str(word) for word in cast(list[object], plugin.get("args") or [])]
        info: Json = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {}}
        extra = {str(entry["name"]): str(entry["value"]) for entry in parts(plugin, "env")}
        done = subprocess.run(
            [str(plugin["command"]), *words],
            env={**os.environ, **extra, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PLUGIN_SECONDS,
            check=False,
        )
        if done.returncode:
            raise OSError(f"the credential plugin failed: {done.stderr.strip()[-200:]}")
        status = part(json.loads(done.stdout), "status")
        user: Json = {"token": status.get("token")}
        for key, name in (("certificate", "Certificate"), ("key", "Key")):
            text = str(status.get(f"client{name}Data") or "")
            user[f"client-{key}-data"] = base64.b64encode(text.encode()).decode()
        return user


def _named(config: Json, kind: str, name: str) -> Json:
    for entry in parts(config, f"{kind}s"):
        if entry.get("name") == name:
            return part(entry, kind)
    raise ValueError(f"the kubeconfig has no {kind} {name!r}")

"""Sends the HTTP requests by which `up` waits for the cluster's components, without a proxy."""

import http.client
import json
import math
import ssl
from datetime import datetime
from pathlib import Path
from typing import Any, cast

TIMEOUT_SECONDS = 5


def https_get(address: str, port: int, path: str, pki: Path) -> tuple[int, str]:
    """Send a GET request with the administrator's certificate, and return status and body.

    Raises:
        OSError: there is no connection, or the server's certificate is not the cluster's.
    """
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return _get(
        http.client.HTTPSConnection(address, port, timeout=TIMEOUT_SECONDS, context=context), path
    )


def http_get(address: str, port: int, path: str) -> tuple[int, str]:
    """Send a GET request without TLS, and return status and body.

    Raises:
        OSError: there is no connection.
    """
    return _get(http.client.HTTPConnection(address, port, timeout=TIMEOUT_SECONDS), path)


def missing_node_condition(node: str, since: float = 0) -> str | None:
    """Say what keeps a node from taking pods; None if nothing does.

    Args:
        node: JSON text of the Node object.
        since: Unix time in seconds. A report that the kubelet sent before it does not count,
            because Kubernetes goes on showing a lost node as Ready for 50 s.
    """
    value = cast(dict[str, Any], json.loads(node))
    conditions = {c["type"]: c for c in value["status"].get("conditions", ())}
    ready = conditions.get("Ready")
    if ready is None:
        return "the node has no Ready condition yet"
    # The heartbeat's time has whole seconds, so `since` is rounded down.
    if since and _unix_time(ready["lastHeartbeatTime"]) < math.floor(since):
        return "the kubelet that was started has not reported yet"
    if ready["status"] != "True":
        return str(ready.get("message", "not Ready"))
    taints = [taint["key"] for taint in value["spec"].get("taints", ())]
    return f"the node has the taints {taints}" if taints else None


def _unix_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _get(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except http.client.HTTPException as reason:
        raise ConnectionError(repr(reason)) from reason
    finally:
        connection.close()

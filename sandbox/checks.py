"""Checks the parts of a cluster that must work before it takes pods, and says what they lack."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandbox import api, components
from sandbox.network import Link
from sandbox.node import Node


@dataclass(frozen=True)
class Check:
    """A check of one part of the cluster.

    Args:
        part: the part's name, for the messages of a wait.
        missing: a function that returns what the part lacks, or None while the part works.
    """

    part: str
    missing: Callable[[], str | None]


def checks_of_cluster(first: Node, link: Link) -> list[Check]:
    """Checks of everything that the first node runs; `link` is the first node's own link."""

    def service_account() -> str | None:
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        return _missing_in_object(first, link, path, lambda _: None)

    def dns() -> str | None:
        return _missing_at(str(link.node), components.COREDNS_READY_PORT, "/ready")

    proxy, node = checks_of_node(first, first)
    return [
        Check("The API server", lambda: missing_api(first, link)),
        Check("The service account that pods need", service_account),
        proxy,
        Check("CoreDNS", dns),
        node,
    ]


def checks_of_node(first: Node, node: Node, since: float = 0) -> list[Check]:
    """Checks of what every node runs; `since` is that of `api.missing_node_condition`."""

    def proxy() -> str | None:
        return _missing_at(node.address or "", components.PROXY_HEALTH_PORT, "/healthz")

    def ready() -> str | None:
        link = first.link
        if link is None:
            return "the first node has no link"
        return _missing_in_object(
            first,
            link,
            f"/api/v1/nodes/{node.name}",
            lambda found: api.missing_node_condition(found, since),
        )

    return [Check("kube-proxy's rules", proxy), Check("The node to be Ready", ready)]


def lacking(checks: Sequence[Check]) -> list[str]:
    """What each part that does not work lacks, in the order of the checks."""
    return [reason for check in checks if (reason := check.missing())]


def missing_api(first: Node, link: Link) -> str | None:
    """What the API server lacks; None while it works."""
    return _missing_in_object(first, link, "/readyz", lambda _: None)


def _missing_in_object(
    first: Node, link: Link, path: str, missing: Callable[[str], str | None]
) -> str | None:
    """What `missing` says of the API server's answer, or why there is no answer."""
    try:
        status, body = api.https_get(str(link.node), components.API_PORT, path, first.layout.pki)
    except OSError as reason:
        return f"https://{link.node}:{components.API_PORT}: {reason}"
    if status != 200:
        return f"{path}: status {status}: {' '.join(body.split())[:300]}"
    return missing(body)


def _missing_at(address: str, port: int, path: str) -> str | None:
    try:
        status, _ = api.http_get(address, port, path)
    except OSError as reason:
        return f"http://{address}:{port}{path}: {reason}"
    return None if status == 200 else f"http://{address}:{port}{path}: status {status}"

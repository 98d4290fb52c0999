"""The variables of the scripts that install k3s, for those that every server or machine needs."""

from collections.abc import Mapping

import pulumi

from infra.labels import content_hash
from infra.platform.proxy import k3s_proxy_environment
from infra.platform.registries import registries
from infra.settings import ClusterSettings, ProxySettings


def server_variables(
    cluster: ClusterSettings, ssh_host: str, shared_registry: str
) -> Mapping[str, pulumi.Input[str]]:
    """The variables that every server needs, and no agent.

    The list in TLS_SAN has only the address of the cluster and the server's own address. It does
    not have the addresses of other servers, so that adding a server does not restart the others.
    k3s itself adds the addresses of all its servers to the one certificate that they share.
    """
    names = filter(None, (cluster.node_address, ssh_host))
    return {
        "POD_CIDR": cluster.pod_cidr,
        "SERVICE_CIDR": cluster.service_cidr,
        "TLS_SAN": " ".join(dict.fromkeys(names)),
        "EMBEDDED_REGISTRY": "true" if shared_registry else "",
    }


def api_address(cluster: ClusterSettings) -> str:
    """The address by which further machines reach the first one, in the form that a URL needs."""
    address = cluster.node_address
    return f"[{address}]" if ":" in address else address


def k3s_variables(
    cluster: ClusterSettings, proxy: ProxySettings, shared_registry: str
) -> Mapping[str, pulumi.Input[str]]:
    """The variables of k3s that every machine needs, as a server or as an agent.

    Args:
        cluster: the settings of the cluster.
        proxy: the proxies of the machine.
        shared_registry: see `ClusterArgs`.
    """
    k3s = cluster.k3s
    return {
        "K3S_VERSION": k3s.version,
        "K3S_SHA256": k3s.sha256,
        "K3S_INSTALLER_SHA256": k3s.installer_sha256,
        "K3S_MIRROR": k3s.mirror,
        "K3S_FORCE": "true" if k3s.force else "",
        "K3S_REGISTRIES": registries(k3s.registries, shared_registry),
        **k3s_proxy_environment(proxy),
        **({"AUTHORITIES": content_hash(proxy.ca_bundle)} if proxy.ca_bundle else {}),
    }

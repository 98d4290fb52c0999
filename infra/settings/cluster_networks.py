"""Reads the networks from which the cluster's pods and Services get their addresses."""

import ipaddress
from typing import TypeAlias

from infra.settings.reader import Reader

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def read_networks(reader: Reader, *, is_k3s: bool) -> tuple[str, str]:
    """Read `podCidr` and `serviceCidr`. A value that is no network becomes an empty text.

    Args:
        reader: gives the values and collects the problems with them.
        is_k3s: whether the cluster is a k3s. k3s does not take one network of IPv4 and one of IPv6.
    """
    pods, services = _read(reader, "podCidr"), _read(reader, "serviceCidr")
    if pods is None or services is None:
        return str(pods or ""), str(services or "")
    if pods.version == services.version and pods.overlaps(services):
        reader.problem(
            "podCidr",
            str(pods),
            f"it overlaps with serviceCidr {services}",
            "Set two networks that have no address in common",
        )
    elif is_k3s and pods.version != services.version:
        reader.problem(
            "podCidr",
            str(pods),
            f"serviceCidr {services} is of IPv{services.version}, and k3s takes no networks of two "
            "kinds",
            "Set both to networks of IPv4, or both to networks of IPv6",
        )
    return str(pods), str(services)


def _read(reader: Reader, key: str) -> Network | None:
    text = reader.text(key)
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        reader.problem(key, text, "it is not a network", "Write it like 10.42.0.0/16")
        return None

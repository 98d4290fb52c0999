"""Reads the networks from which the cluster's pods and Services get their addresses."""

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

from infra.settings.reader import Reader

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
# The longest prefixes that k3s can use, by the version of IP. Each machine gets a part of podCidr,
# of this size. The DNS server of the cluster gets the tenth address of serviceCidr.
_LONGEST_PREFIX = {"podCidr": {4: 24, 6: 64}, "serviceCidr": {4: 28, 6: 124}}


def read_networks(reader: Reader, *, is_k3s: bool) -> tuple[str, str]:
    """Read `podCidr` and `serviceCidr`. A value that is no network becomes an empty text.

    Args:
        reader: gives the values and collects the problems with them.
        is_k3s: whether the cluster is a k3s. k3s does not take one network of IPv4 and one of IPv6.
    """
    pods, services = _read(reader, "podCidr"), _read(reader, "serviceCidr")
    for key, network in (("podCidr", pods), ("serviceCidr", services)):
        if is_k3s and network and network.prefixlen > _LONGEST_PREFIX[key][network.version]:
            longest = _LONGEST_PREFIX[key][network.version]
            hint = f"Set a network with a prefix of at most /{longest}"
            reader.problem(key, str(network), "it is too small for a k3s", hint)
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


def check_room_for_machines(reader: Reader, pods: str, machines: int) -> None:
    """Refuse a `podCidr` of which some machine would get no part: its node never becomes Ready.

    Args:
        reader: collects the problems that are found.
        pods: `podCidr` of a k3s that this stack installs; empty if it is no network.
        machines: the number of machines of the cluster.
    """
    if not pods or not reader.are_right("podCidr"):
        return
    network = ipaddress.ip_network(pods)
    of_each = _LONGEST_PREFIX["podCidr"][network.version]
    longest = of_each - (machines - 1).bit_length()
    if network.prefixlen > longest:
        reader.problem(
            "podCidr",
            pods,
            f"it is too small for {machines} machines, each of which gets a network /{of_each} of "
            "it for its pods",
            f"Set a network with a prefix of at most /{longest}",
        )


def check_node_address(reader: Reader, text: str, networks: Sequence[str]) -> None:
    """Refuse a `nodeAddress` that no machine can have, or that is an address of a pod or Service.

    Args:
        reader: collects the problems that are found.
        text: the setting. A name is not looked up.
        networks: `podCidr` and `serviceCidr` of a k3s that this stack installs. In another cluster
            the pods may be in the network of the machines.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return
    if _is_of_nobody(address):
        hint = "Set the machine's address, such as 10.1.2.3"
        reader.problem("nodeAddress", text, "it is the address of no machine", hint)
    for key, network in zip(("podCidr", "serviceCidr"), networks, strict=False):
        if network and address in ipaddress.ip_network(network):
            whose = "pods" if key == "podCidr" else "Services"
            reason = f"it is in the network of the {whose} ({key} {network})"
            hint = f"Set a {key} that has no address of a machine"
            reader.problem("nodeAddress", text, reason, hint)


def _is_of_nobody(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255"


def _read(reader: Reader, key: str) -> Network | None:
    text = reader.text(key)
    if not reader.are_right(key):
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        reader.problem(key, text, "it is not a network", "Write it like 10.42.0.0/16")
        return None
    if "/" not in text:
        hint = "Write the length of its prefix behind it, like 10.42.0.0/16"
        reader.problem(key, text, "it is a single address and not a network", hint)
        return None
    if ipaddress.ip_interface(text).ip != network.network_address:
        reader.problem(key, text, f"it is an address of the network {network}", f"Set {network}")
        return None
    if network.is_loopback or network.is_multicast:
        whose = "pod" if key == "podCidr" else "Service"
        hint = "Set a private network, such as 10.42.0.0/16"
        reader.problem(key, text, f"no {whose} can have an address in it", hint)
        return None
    return network

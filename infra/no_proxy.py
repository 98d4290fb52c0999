"""Computes NO_PROXY: the hosts that must be reached without a proxy. All functions are pure."""

import ipaddress
import re
from collections.abc import Iterable, Sequence

CLUSTER_NAMES = (".svc", ".cluster.local", "127.0.0.1", "localhost")


def split_no_proxy(text: str) -> tuple[str, ...]:
    """The entries of a comma-separated list, in their order, without blanks and repetitions."""
    entries = (entry.strip() for entry in text.split(","))
    return tuple(dict.fromkeys(entry for entry in entries if entry))


def required_entries(node_address: str, pod_cidr: str, service_cidr: str) -> tuple[str, ...]:
    """What every NO_PROXY of this cluster contains: node, pods, services, their names, loopback.

    An argument that is empty, because it is not known, is left out.
    """
    known = filter(None, (node_address, pod_cidr, service_cidr))
    return tuple(dict.fromkeys((*known, *CLUSTER_NAMES)))


def no_proxy(required: Sequence[str], more: Iterable[str]) -> str:
    """The required entries and then the user's own ones, each once, joined by commas."""
    return ",".join(dict.fromkeys((*required, *more)))


def missing_entries(override: Iterable[str], required: Iterable[str]) -> tuple[str, ...]:
    """The required entries that are missing in a list which the user wants to use instead."""
    given = set(override)
    return tuple(entry for entry in required if entry not in given)


def bypasses_proxy(host: str, entries: Iterable[str]) -> bool:
    """Whether a host is reached without the proxy, by curl's rules.

    A name stands for itself and all its subdomains. An entry may also be an address, a network, or
    `*` for all hosts.
    """
    entries = tuple(entries)
    if "*" in entries:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        names = [entry.lstrip(".") for entry in entries]
        return any(host == name or host.endswith(f".{name}") for name in names)
    return any(address in network for network in map(_network, entries) if network)


def is_address(text: str) -> bool:
    """Whether a text is an IP address, and not a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether an address is that of the machine itself, such as 127.0.0.1 or `localhost`."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def is_entry(text: str) -> bool:
    """Whether an entry is one of a kind that programs know: a name, an address, a network or `*`.

    A name may begin with `.` or `*.`. A port may follow a name, and an IPv6 address in brackets.
    """
    name = r"(\*?\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?(:\d{1,5})?"
    return (
        text == "*"
        or _network(re.sub(r"^\[(.*)\](:\d{1,5})?$", r"\1", text)) is not None
        or re.fullmatch(name, text, re.ASCII) is not None
    )


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None

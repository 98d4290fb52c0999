"""Chooses the proxy for an address by the variables that curl, Go and Python use."""

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from infra.no_proxy import bypasses_proxy, split_no_proxy

_USUAL_PORTS = {"https": 443, "http": 80}
_MAYBE_WITH_PORT = re.compile(r"(\[[^]]*\]|[^:]*)(?::(\d+))?")  # not an IPv6 address alone


def proxy_of(url: str, environment: Mapping[str, str]) -> str:
    """Return the proxy for an address; empty if it is reached directly.

    Args:
        url: the address.
        environment: the variables `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, with
            names in lower or in upper case.
    """
    parts = urlsplit(url)
    named = {name.lower(): value for name, value in environment.items() if value}
    exceptions = [_plain(each, parts) for each in split_no_proxy(named.get("no_proxy", ""))]
    if bypasses_proxy(parts.hostname or "", filter(None, exceptions)):
        return ""
    proxy = named.get(f"{parts.scheme}_proxy") or named.get("all_proxy", "")
    # As for curl and Go, a proxy without a scheme, such as `proxy:3128`, speaks plain HTTP.
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


def _plain(entry: str, address: SplitResult) -> str:
    """Return an entry of NO_PROXY in the form that curl knows; empty if it is for another port.

    Go also knows an entry with a port, and takes `*.corp` for `.corp`.
    """
    found = _MAYBE_WITH_PORT.fullmatch(entry)
    if entry == "*" or found is None:
        return entry
    name, port = found.groups()
    if port and int(port) != _port(address):
        return ""
    return name.strip("[]").removeprefix("*").rstrip(".").lower()


def _port(address: SplitResult) -> int | None:
    try:
        return address.port or _USUAL_PORTS.get(address.scheme)
    except ValueError:  # It is no port, which the request itself will report.
        return None

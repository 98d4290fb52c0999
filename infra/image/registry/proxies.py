"""Chooses the proxy for an address by the variables that curl, Go and Python use."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from infra.no_proxy import bypasses_proxy, split_no_proxy


def proxy_of(url: str, environment: Mapping[str, str]) -> str:
    """Return the proxy for an address; empty if it is reached directly.

    Args:
        url: the address.
        environment: the variables `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, with
            names in lower or in upper case.
    """
    parts = urlsplit(url)
    named = {name.lower(): value for name, value in environment.items() if value}
    if bypasses_proxy(parts.hostname or "", split_no_proxy(named.get("no_proxy", ""))):
        return ""
    return named.get(f"{parts.scheme}_proxy") or named.get("all_proxy", "")

"""Which proxy leads to an address, by the variables that curl, Go and Python know."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from infra.no_proxy import bypasses_proxy, split_no_proxy


def proxy_of(url: str, environment: Mapping[str, str]) -> str:
    """The proxy by which an address is reached; empty: directly.

    Args:
        url: where to.
        environment: the variables `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in small
            letters or in capitals.
    """
    parts = urlsplit(url)
    named = {name.lower(): value for name, value in environment.items() if value}
    if bypasses_proxy(parts.hostname or "", split_no_proxy(named.get("no_proxy", ""))):
        return ""
    return named.get(f"{parts.scheme}_proxy") or named.get("all_proxy", "")

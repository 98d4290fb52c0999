"""What a kubeconfig says about where its cluster is."""

from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import yaml


def api_server_host(path: Path, context: str) -> str:
    """Host name or address of the API server; on a one-node cluster that is the node.

    Args:
        path: a kubeconfig file.
        context: one of its contexts; empty: its current one.

    Raises:
        ValueError: the file cannot be read, or has no such context, cluster or server.
    """
    try:
        content: object = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"a readable kubeconfig ({error})") from None
    if not isinstance(content, dict):
        raise ValueError("a kubeconfig: this file is none")
    config = cast(dict[str, Any], content)
    name = context or config.get("current-context") or ""
    cluster = _named(config, "contexts", name).get("context", {}).get("cluster", "")
    server = _named(config, "clusters", cluster).get("cluster", {}).get("server", "")
    host = urlsplit(str(server)).hostname
    if not host:
        raise ValueError(f"a kubeconfig whose context {name!r} leads to a cluster with a server")
    return host


def _named(config: dict[str, Any], section: str, name: str) -> dict[str, Any]:
    entries = cast(list[dict[str, Any]], config.get(section) or [])
    for entry in entries:
        if entry.get("name") == name:
            return entry
    known = ", ".join(str(entry.get("name")) for entry in entries) or "none"
    raise ValueError(f"a kubeconfig with {name!r} among its {section} (it has: {known})")

"""Helpers for the machines in a stack's settings, and for what k3s stores about them."""

from typing import Any

import yaml

from sandbox.stack import Stack
from tests.node.host import Host

SERVER = "gpu-node"
TOKENS = ("token", "agent-token")  # the files of the servers' token and of the agents' token
TRUST = "/usr/local/share/ca-certificates/disttrain.crt"  # from the setting caBundle


def holding(host: Host, text: str) -> list[str]:
    """Return the files of k3s and of the system's configuration that contain this text."""
    search = "grep --recursive --files-with-matches --fixed-strings --file=-"
    return host.try_shell(f"{search} /etc /var/lib/rancher /run/k3s", text).stdout.split()


def set_nodes(stack: Stack, nodes: list[dict[str, Any]]) -> None:
    """Replace the list `nodes` in the stack's settings file."""
    content = yaml.safe_load(stack.settings_file.read_text())
    content["config"]["disttrain:nodes"] = nodes
    stack.settings_file.write_text(yaml.safe_dump(content))

"""The machines of a stack in its settings, and what k3s keeps of them."""

from typing import Any

import yaml

from sandbox.stack import Stack
from tests.node.host import Host

SERVER = "gpu-node"
TOKENS = ("token", "agent-token")  # k3s' own, with which one could be a server, and the agents'
TRUST = "/usr/local/share/ca-certificates/disttrain.crt"  # of caBundle


def holding(host: Host, text: str) -> list[str]:
    """The files of k3s and of the system's configuration that have this text in them."""
    search = "grep --recursive --files-with-matches --fixed-strings --file=-"
    return host.try_shell(f"{search} /etc /var/lib/rancher /run/k3s", text).stdout.split()


def set_nodes(stack: Stack, nodes: list[dict[str, Any]]) -> None:
    """Change the list in the stack's file."""
    content = yaml.safe_load(stack.settings_file.read_text())
    content["config"]["disttrain:nodes"] = nodes
    stack.settings_file.write_text(yaml.safe_dump(content))

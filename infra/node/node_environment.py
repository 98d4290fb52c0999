"""How commands of this machine learn the way to the node: `infra.image.reach` reads it."""

import json

import pulumi

from infra.node.node_variable import VARIABLE
from infra.settings import HostSettings, PlatformSettings


def node_environment(settings: PlatformSettings) -> dict[str, pulumi.Output[str]]:
    """Where containerd is root's: on the host of our k3s. Holds the key and sudo's password."""
    node = node_text(settings)
    return host_variable(node) if node else {}


def host_variable(text: str) -> dict[str, pulumi.Output[str]]:
    """The variable, with what `host_text` has made."""
    return {VARIABLE: pulumi.Output.secret(text)}


def node_text(settings: PlatformSettings) -> str | None:
    """What stands in the variable, not yet a secret; None: containerd is reached from here."""
    return host_text(settings.host) if settings.cluster.kind == "k3s" else None


def host_text(host: HostSettings) -> str:
    """The way to a host, and sudo's password there."""
    return json.dumps(host.way(), sort_keys=True)

"""Reads the further machines: each joins, as a node, the k3s of the first machine (`host`)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from infra.no_proxy import is_loopback
from infra.settings.address import spelled
from infra.settings.cluster import ClusterSettings, lacks_address
from infra.settings.cluster_networks import check_room_for_machines
from infra.settings.node import INTERFACE, INTERFACE_FORM, HostSettings, SshSettings
from infra.settings.nodes_host import HOST_KEYS, read_node_host
from infra.settings.nodes_servers import Role, check_servers, read_role
from infra.settings.pod_labels import is_key, is_value, label_fault, read_texts
from infra.settings.reader import Reader
from infra.settings.setting_error import problem_text
from infra.settings.similar_names import did_you_mean

KEY = "nodes"
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# key of an item -> the type of its value, and the words for it in messages
_KEYS: Mapping[str, tuple[type, str]] = {
    "name": (str, "a text"),
    "role": (str, "a text"),
    **HOST_KEYS,
    "interface": (str, "a text"),
    "labels": (dict, "a mapping of keys such as {rack: r1}"),
    "taints": (list, "a list such as [team=ml:NoSchedule]"),
}
_OF_KUBELET = ("kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch")
_SECRETS = ("private_key", "sudo_password")
_TAINT = r"(?P<key>[^=:]+)(=(?P<value>[^=:]*))?:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)"


@dataclass(frozen=True)
class NodeSettings:
    """A further machine.

    Args:
        name: name of the Node in the cluster, which may differ from the machine's host name.
        role: the role of its k3s: `agent`, or `server` for one that also holds the cluster's data.
        host: how the machine is reached, always over SSH, and whether it is lost (`gone`).
        interface: the network interface whose address the node has; empty: that of the default
            route.
        labels: labels of the Node.
        taints: taints of the Node, as `key=value:Effect` or `key:Effect`.
    """

    name: str
    role: Role
    host: HostSettings
    interface: str
    labels: Mapping[str, str]
    taints: tuple[str, ...]

    @property
    def ssh(self) -> SshSettings:
        """How the machine is reached."""
        assert self.host.ssh is not None
        return self.host.ssh

    @property
    def is_server(self) -> bool:
        """Whether the machine is a server, as the first machine is."""
        return self.role == "server"


def read_nodes(
    reader: Reader, host: HostSettings, cluster: ClusterSettings
) -> tuple[NodeSettings, ...]:
    """Read the list `nodes`. The result lacks the items in which something is wrong."""
    items = reader.sequence(KEY)
    if not items:
        return ()
    _check_secrets(reader, items)
    _check_cluster(reader, cluster)
    found: list[NodeSettings] = []
    seen: dict[tuple[str, object], str] = {}
    if host.ssh:
        seen["address", _way_of(host.ssh)] = "the first machine (sshHost)"
    for index, item in enumerate(items):
        where = f"{KEY}[{index}]"
        node = _read_node(reader, where, item, host)
        if node is None:
            continue
        for key, value, shown in (
            ("name", node.name, node.name),
            ("address", _way_of(node.ssh), node.ssh.host),
        ):
            first = seen.setdefault((key, value), where)
            if first != where:
                reason = f"{first} has it too, and each machine is one node"
                reader.problem(f"{where}.{key}", shown, reason, "Take one of the two away")
        found.append(node)
    _check_first_address(reader, cluster, found)
    if cluster.installs_k3s:
        there = 1 + sum(not node.host.gone for node in found)
        check_room_for_machines(reader, cluster.pod_cidr, there)
    if len(found) == len(items):  # With a wrong item, the number of servers is not known.
        gone = [node.host.gone for node in found if node.is_server]
        check_servers(reader, KEY, gone, cluster)
    return tuple(found)


def _way_of(ssh: SshSettings) -> tuple[object, ...]:
    """Return what two machines never have in common.

    The jump host is part of it: behind two jump hosts the same address may be two machines.
    """
    jump = (spelled(ssh.jump.host), ssh.jump.port) if ssh.jump else None
    return spelled(ssh.host), ssh.port, jump


def _check_secrets(reader: Reader, items: list[Any]) -> None:
    """Note secrets in plain text, and hide `nodes` from all later messages.

    It runs before all other checks, whose messages would show a secret that is not encrypted.
    """
    if reader.is_encrypted(KEY):
        return
    for index, item in enumerate(items):
        for name in _SECRETS:
            if isinstance(item, dict) and cast(dict[str, Any], item).get(name):
                reader.hide(KEY)
                path = f"{KEY}[{index}].{name}"
                reason = "it holds a secret in plain text"
                hint = f"Encrypt it: `pulumi config set --secret --path '{path}'`"
                reader.add_problem(problem_text(path, "[secret]", reason, hint))


def _check_cluster(reader: Reader, cluster: ClusterSettings) -> None:
    if not cluster.installs_k3s:
        reader.problem(
            KEY,
            "...",
            "machines can only join a k3s that this stack installs",
            "Remove the list, and ask the cluster's administrator to add machines to it",
        )
    elif is_loopback(cluster.node_address) or lacks_address(reader, cluster):
        reader.problem(
            "nodeAddress",
            cluster.node_address,
            "the further machines (nodes) must reach the first one",
            "Set the first machine's address, as the others reach it",
        )


def _check_first_address(
    reader: Reader, cluster: ClusterSettings, nodes: list[NodeSettings]
) -> None:
    """Refuse a first machine with the address of another one, which would try to join itself.

    Behind a jump host the same address may be that of another machine.
    """
    for index, node in enumerate(nodes):
        if not node.ssh.jump and spelled(node.ssh.host) == spelled(cluster.node_address):
            reader.problem(
                "nodeAddress",
                cluster.node_address,
                f"it is the address of {KEY}[{index}] ({node.name}), and k3s of the further "
                "machines joins the first one there",
                "Set the first machine's address, as the others reach it",
            )


def _read_node(reader: Reader, where: str, item: object, host: HostSettings) -> NodeSettings | None:
    """Read one item; None if there is a problem in it."""
    if not isinstance(item, dict):
        reader.problem(where, item, "it is not an object", "Write it like {name: gpu2, ...}")
        return None
    given = cast(dict[str, Any], item)
    before = len(reader.problems)
    for name in sorted(set(given) - set(_KEYS)):
        reason = f"a machine has no such key{did_you_mean(name, _KEYS)}"
        hint = f"Use one of {', '.join(_KEYS)}"
        reader.problem(f"{where}.{name}", given[name], reason, hint)
    for name, (type_, words) in _KEYS.items():
        if name in given and type(given[name]) is not type_:
            reason = f"it is not {words}"
            reader.problem(f"{where}.{name}", given[name], reason, f"Set {words}")
    if len(reader.problems) > before:
        return None
    _check_texts(reader, where, given)
    role = read_role(reader, where, given)
    node_host = read_node_host(reader, where, given, host)
    labels = read_texts(reader, f"{where}.labels", given.get("labels", {}))
    taints = _read_taints(reader, where, given.get("taints", []))
    _check_labels(reader, where, labels)
    if len(reader.problems) > before:
        return None
    return NodeSettings(
        name=given["name"],
        role=role,
        host=node_host,
        interface=given.get("interface", ""),
        labels=labels,
        taints=taints,
    )


def _check_texts(reader: Reader, where: str, given: Mapping[str, Any]) -> None:
    checks = (
        ("name", _DNS_LABEL, "the name of a node: small letters, digits and '-'", "gpu2"),
        ("interface", f"({INTERFACE})?", INTERFACE_FORM, "eth1"),
    )
    for name, pattern, form, example in checks:
        value = given.get(name, "")
        if re.fullmatch(pattern, value) is None:
            reader.problem(f"{where}.{name}", value, f"it is not {form}", f"Set one like {example}")


def _check_labels(reader: Reader, where: str, labels: Mapping[str, str]) -> None:
    for name, value in labels.items():
        if fault := label_fault(name, value):
            reader.problem(f"{where}.labels.{name}", value, *fault)
        elif name in _OF_KUBELET:
            reason, hint = "the kubelet sets it itself", "Remove it, or use a label of another name"
            reader.problem(f"{where}.labels.{name}", value, reason, hint)
        elif name.startswith("disttrain.dev/"):
            reason = "the program finds its nodes by the labels that begin so"
            reader.problem(f"{where}.labels.{name}", value, reason, "Use a label of another prefix")


def _read_taints(reader: Reader, where: str, taints: list[object]) -> tuple[str, ...]:
    seen: dict[tuple[str, str], str] = {}
    for taint in taints:
        found = re.fullmatch(_TAINT, taint) if isinstance(taint, str) else None
        if not found or not is_key(found["key"]) or not is_value(found["value"] or ""):
            hint = "Write it like dedicated=training:NoSchedule"
            reader.problem(f"{where}.taints", taint, "it is not a taint", hint)
            continue
        id = (found["key"], found["effect"])
        if id in seen:
            reason = f"{seen[id]!r} has the same key and effect, of which a node has one taint"
            reader.problem(f"{where}.taints", taint, reason, "Remove one of the two")
        seen[id] = found[0]
    return tuple(seen.values())

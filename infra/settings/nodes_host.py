"""Reads how a further machine is reached; what its item does not say is as for the first one."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infra.settings.address import ADDRESS, ADDRESS_FORM, check_address
from infra.settings.node import (
    USER,
    HostSettings,
    JumpSettings,
    SshSettings,
    host_key_fault,
)
from infra.settings.private_key import private_key_problem
from infra.settings.reader import Reader
from infra.settings.secret import Secret
from infra.settings.setting_error import SettingError

# key of an item -> the type of its value, and the words for it in messages
HOST_KEYS: Mapping[str, tuple[type, str]] = {
    "address": (str, "a text"),
    "port": (int, "a whole number"),
    "user": (str, "a text"),
    "host_key": (str, "a text"),
    "private_key": (str, "a text"),
    "sudo_password": (str, "a text"),
    "jump_host": (str, "a text"),
    "jump_port": (int, "a whole number"),
    "jump_user": (str, "a text"),
    "jump_host_key": (str, "a text"),
    "gone": (bool, "true or false"),
}
_OF_JUMP = ("jump_port", "jump_user", "jump_host_key")
SSH_PORT = 22


def read_node_host(
    reader: Reader, where: str, given: Mapping[str, Any], host: HostSettings
) -> HostSettings:
    """Return how the machine is reached.

    Args:
        reader: collects the problems that are found.
        where: key of the item, such as `nodes[0]`.
        given: the item. The values of the keys in HOST_KEYS have the types that HOST_KEYS says.
        host: settings of the first machine.
    """
    shared = host.defaults
    ssh = replace(
        shared,
        host=given.get("address", ""),
        port=given.get("port", shared.port),
        user=given.get("user", shared.user),
        host_key=given.get("host_key", ""),
        private_key=_secret(given, "private_key") or shared.private_key,
    )
    _check_hop(reader, where, "", ssh)
    _check_private_key(reader, f"{where}.private_key", given.get("private_key", ""))
    ssh = replace(ssh, jump=_read_jump(reader, where, given, ssh))
    password = _secret(given, "sudo_password") or host.sudo_password
    return HostSettings(ssh, password, given.get("gone", False), ssh)


def _read_jump(
    reader: Reader, where: str, given: Mapping[str, Any], ssh: SshSettings
) -> JumpSettings | None:
    """Return the item's jump host, or that of the first machine if the item has no `jump_host`.

    An empty `jump_host` means that there is none.
    """
    if not given.get("jump_host"):
        for name in _OF_JUMP:
            if name in given:
                reason = "there is no jump_host that it could be of"
                hint = "Set jump_host too, or remove it"
                reader.problem(f"{where}.{name}", given[name], reason, hint)
        return None if "jump_host" in given else ssh.jump
    jump = JumpSettings(
        host=given["jump_host"],
        port=given.get("jump_port", SSH_PORT),
        user=given.get("jump_user", ssh.user),
        host_key=given.get("jump_host_key", ""),
    )
    _check_hop(reader, where, "jump_", jump)
    return jump


def _check_hop(reader: Reader, where: str, prefix: str, hop: SshSettings | JumpSettings) -> None:
    address = f"{prefix}host" if prefix else "address"
    checks = (
        (address, hop.host, ADDRESS, ADDRESS_FORM, "10.1.2.4"),
        (f"{prefix}user", hop.user, USER, "the name of a user", "root"),
    )
    for name, value, pattern, form, example in checks:
        if name.endswith("user") and not value and not reader.are_right("sshUser"):
            continue  # It takes the place of a wrong sshUser, whose problem is noted.
        if re.fullmatch(pattern, value) is None:
            reader.problem(f"{where}.{name}", value, f"it is not {form}", f"Set one like {example}")
    if re.fullmatch(ADDRESS, hop.host):
        check_address(reader, f"{where}.{address}", hop.host, f"{prefix}port")
    if not 1 <= hop.port <= 65535:
        hint = "Set a number from 1 to 65535"
        reader.problem(f"{where}.{prefix}port", hop.port, "it is no port", hint)
    try:
        host_key_fault(hop.host_key, "the jump host's" if prefix else "the node's")
    except SettingError as refused:
        reader.problem(f"{where}.{prefix}host_key", hop.host_key[:20], refused.reason, refused.hint)


def _check_private_key(reader: Reader, key: str, text: str) -> None:
    """Refuse a machine's own key that no connection could use.

    A key in plain text is refused for that alone.
    """
    if reader.is_encrypted("nodes") and (fault := private_key_problem(text, f"--path '{key}'")):
        reader.problem(key, text, fault.reason, fault.hint)


def _secret(given: Mapping[str, Any], name: str) -> Secret | None:
    return Secret(given[name]) if given.get(name) else None

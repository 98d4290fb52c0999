"""How OpenSSH's client is called to reach the host: checked host keys, private key, jump host.

The private key is in no file of a disk where the system allows it: a program that is killed removes
nothing, and a key in a file would stay.

Standard library only, for Python 3.9 and newer: the text of this file is also part of the program
in the kubeconfigs that infra/node/tunnel_kubeconfig.py makes.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

CONNECT_SECONDS = 10


def ssh_command(spec: Mapping[str, Any], folder: Path, *options: str) -> list[str]:
    """The words of the client, which asks nothing; the command for the host comes after them.

    Args:
        spec: how to get to the host: host, port, user (empty: as here), host_key (empty: the
            user's known_hosts decides), private_key (its text) or None, and jump, which is None or
            the same without private_key. May have identity_file, the path of a private key.
        folder: readable by this user alone; it and this process must last as long as connections
            are opened.
        options: further ones of the client.
    """
    key = _key_file(spec["private_key"], folder) if spec["private_key"] else None
    (folder / "known_hosts").write_text(known_hosts(spec))
    (folder / "config").write_text(ssh_config(spec, folder, key))
    return ["ssh", "-F", str(folder / "config"), *options, _alias("node", spec)]


def _key_file(text: str, folder: Path) -> Path:
    """Where the client reads the key: memory of this process, or a file where that cannot be."""
    if in_memory := _key_in_memory(text):
        return in_memory
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_text(_whole(text))
    return key


@cache
def _key_in_memory(text: str) -> Path | None:
    """A file without a name, which ends with this process; None: the system has no such files.

    The client opens it by the path of this process's descriptor, and demands mode 0600.
    """
    if not hasattr(os, "memfd_create"):  # not Linux
        return None
    descriptor = os.memfd_create("ssh-key")
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, _whole(text).encode())
    path = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    return path if os.access(path, os.R_OK) else None  # there may be no /proc


def _whole(text: str) -> str:
    return text.rstrip("\n") + "\n"


def ssh_config(spec: Mapping[str, Any], folder: Path, key: Path | None = None) -> str:
    """The client's configuration: keys checked, nothing asked, dead lines noticed.

    `key` is the file with the text of `private_key`.
    """
    lines: list[str] = []
    for name, hop in (("node", spec), ("jump", spec["jump"])):
        if hop:
            values = _hop(hop) | (_pinned(name, folder) if hop["host_key"] else {})
            identity = key or spec.get("identity_file")
            if identity:
                values |= {"IdentityFile": f'"{identity}"', "IdentitiesOnly": "yes"}
            if spec["private_key"]:
                values["IdentityAgent"] = "none"  # one that hangs would hold up the connection
            if name == "node" and spec["jump"]:
                through = _alias("jump", spec["jump"])
                config = shlex.quote(str(folder / "config"))  # a shell reads the command
                values["ProxyCommand"] = f"ssh -F {config} -W [%h]:%p {through}"
            lines += [f"Host {_alias(name, hop)}", *(f"  {k} {v}" for k, v in values.items())]
    if any(hop and not hop["host_key"] for hop in (spec, spec["jump"])):  # after what stands above
        lines += ["Host *", "  Include ~/.ssh/config /etc/ssh/ssh_config"]
    return "\n".join([*lines, ""])


def known_hosts(spec: Mapping[str, Any]) -> str:
    """The pinned keys, under the names of `ssh_config`."""
    hops = (("node", spec), ("jump", spec["jump"]))
    return "".join(f"{name} {hop['host_key']}\n" for name, hop in hops if hop and hop["host_key"])


def _alias(name: str, hop: Mapping[str, Any]) -> str:
    """Known_hosts and the user's own configuration know the host by its real name."""
    return name if hop["host_key"] else hop["host"]


def _hop(hop: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "HostName": hop["host"],
        "Port": hop["port"],
        **({"User": hop["user"]} if hop["user"] else {}),
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": CONNECT_SECONDS,
        "ServerAliveInterval": 15,
        "ExitOnForwardFailure": "yes",
    }


def _pinned(name: str, folder: Path) -> dict[str, Any]:
    return {
        "HostKeyAlias": name,
        "UserKnownHostsFile": f'"{folder / "known_hosts"}"',
        "GlobalKnownHostsFile": "/dev/null",
    }

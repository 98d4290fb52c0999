"""Builds the command line and the files with which OpenSSH's client reaches the host.

They cover checked host keys, the private key and a jump host. If the system allows it, the private
key is in no file on a disk: a program that is killed removes no files, so the key would stay there.

This file uses only the standard library, and works with Python 3.9 and newer, because its text is
also part of the program in the kubeconfigs that infra/node/tunnel_kubeconfig.py makes.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

CONNECT_SECONDS = 10
# The user's own configuration may forward the agent, which root on the host could use, and ports,
# which may be taken. None of it is needed.
_NOTHING_FORWARDED = {"ClearAllForwardings": "yes", "ForwardAgent": "no", "ForwardX11": "no"}


def ssh_command(spec: Mapping[str, Any], folder: Path, *options: str) -> list[str]:
    """Build the words that call the client. The command for the host has to follow them.

    The client asks the user nothing.

    Args:
        spec: how to reach the host. Its keys are host, port, user (empty: the client's default),
            host_key (empty: the user's known_hosts decides), private_key (the text of the key, or
            None) and jump. jump is None, or a mapping with the same keys but private_key.
            identity_file, the path of a private key, may be there too.
        folder: a folder that only this user can read. The files in it are written here. The folder
            and this process have to exist as long as connections are opened.
        options: further options of the client.
    """
    key = _key_file(spec["private_key"], folder) if spec["private_key"] else None
    (folder / "known_hosts").write_text(known_hosts(spec))
    (folder / "config").write_text(ssh_config(spec, folder, key))
    return ["ssh", "-F", str(folder / "config"), *options, _alias("node", spec)]


def _key_file(text: str, folder: Path) -> Path:
    """The path at which the client reads the key: memory of this process, or else a file."""
    if in_memory := _key_in_memory(text):
        return in_memory
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_text(_whole(text))
    return key


@cache
def _key_in_memory(text: str) -> Path | None:
    """Put the key into a file in memory, which ends with this process.

    The client opens the file by the path of this process's descriptor, and demands mode 0600.

    Returns:
        The path; None: the system has no such files.
    """
    if not hasattr(os, "memfd_create"):  # The system is not Linux.
        return None
    descriptor = os.memfd_create("ssh-key")
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, _whole(text).encode())
    path = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    return path if os.access(path, os.R_OK) else None  # /proc may be missing.


def _whole(text: str) -> str:
    return text.rstrip("\n") + "\n"


def ssh_config(spec: Mapping[str, Any], folder: Path, key: Path | None = None) -> str:
    """Build the client's configuration.

    With it the client checks host keys, asks nothing, and notices dead connections.

    Args:
        spec: see `ssh_command`.
        folder: see `ssh_command`.
        key: the file with the text of `private_key`; None: there is none.
    """
    lines: list[str] = []
    for name, hop in (("node", spec), ("jump", spec["jump"])):
        if hop:
            values = _hop(hop) | (_pinned(name, folder) if hop["host_key"] else _NOTHING_FORWARDED)
            identity = key or spec.get("identity_file")
            if identity:
                values |= {"IdentityFile": f'"{identity}"', "IdentitiesOnly": "yes"}
            if spec["private_key"]:
                values["IdentityAgent"] = "none"  # An agent that hangs would delay us.
            if name == "node" and spec["jump"]:
                through = _alias("jump", spec["jump"])
                config = shlex.quote(str(folder / "config"))  # The client calls a shell.
                values["ProxyCommand"] = f"ssh -F {config} -W [%h]:%p {through}"
            lines += [f"Host {_alias(name, hop)}", *(f"  {k} {v}" for k, v in values.items())]
    if any(hop and not hop["host_key"] for hop in (spec, spec["jump"])):
        # The client uses the first value that it finds, so the lines above count first.
        lines += ["Host *", "  Include ~/.ssh/config /etc/ssh/ssh_config"]
    return "\n".join([*lines, ""])


def known_hosts(spec: Mapping[str, Any]) -> str:
    """Build the known_hosts file: the pinned host keys, under the names that `ssh_config` uses."""
    hops = (("node", spec), ("jump", spec["jump"]))
    return "".join(f"{name} {hop['host_key']}\n" for name, hop in hops if hop and hop["host_key"])


def _alias(name: str, hop: Mapping[str, Any]) -> str:
    """The name of a host in the client's configuration.

    A host without a pinned key keeps its real name, because the user's known_hosts and
    configuration use that name.
    """
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

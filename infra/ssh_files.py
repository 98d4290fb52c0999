"""What OpenSSH's client reads to reach the host: pinned host keys, the private key, a jump host."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONNECT_SECONDS = 20


def write_ssh_files(spec: Mapping[str, Any], folder: Path) -> Path:
    """Write them; `ssh -F <the returned file> node` then asks nothing.

    Args:
        spec: how to get to the host: host, port, user, host_key, private_key or None, and jump,
            which is None or the same without private_key.
        folder: readable by this user alone; must last as long as connections are opened.
    """
    (folder / "known_hosts").write_text(known_hosts(spec))
    (folder / "config").write_text(ssh_config(spec, folder))
    if spec["private_key"]:
        key = folder / "key"
        key.touch(mode=0o600)
        key.write_text(spec["private_key"].rstrip("\n") + "\n")
    return folder / "config"


def ssh_config(spec: Mapping[str, Any], folder: Path) -> str:
    """The configuration for `ssh node`: pinned keys, nothing asked, dead lines noticed."""
    common = {
        "UserKnownHostsFile": folder / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": CONNECT_SECONDS,
        "ServerAliveInterval": 15,
        "ExitOnForwardFailure": "yes",
    }
    if spec["private_key"]:
        common |= {"IdentityFile": folder / "key", "IdentitiesOnly": "yes"}
    lines: list[str] = []
    for name, hop in (("node", spec), ("jump", spec["jump"])):
        if hop:
            values = {"HostName": hop["host"], "Port": hop["port"], "User": hop["user"], **common}
            values["HostKeyAlias"] = name
            if name == "node" and spec["jump"]:
                values["ProxyCommand"] = f"ssh -F {folder / 'config'} -W %h:%p jump"
            lines += [f"Host {name}", *(f"  {key} {value}" for key, value in values.items())]
    return "\n".join([*lines, ""])


def known_hosts(spec: Mapping[str, Any]) -> str:
    """The pinned keys, under the names of `ssh_config`."""
    hops = (("node", spec), ("jump", spec["jump"]))
    return "".join(f"{name} {hop['host_key']}\n" for name, hop in hops if hop)

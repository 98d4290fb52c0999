"""Reaches the node that `$DISTTRAIN_NODE` describes: this machine, or another one over SSH."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.image.node import Node
from infra.node.ssh_files import ssh_command

MASTER_SECONDS = 60


@contextmanager
def open_node(text: str | None) -> Iterator[Node | None]:
    """Give the node that `text` describes; None without a text: ctr then runs as this user.

    All commands share one SSH connection, so that a command costs a round trip and no login.

    Args:
        text: JSON with the keys `ssh` (null for this machine, otherwise as `ssh_command` takes it)
            and `sudo_password`.
    """
    if not text:
        yield None
        return
    spec = json.loads(text)
    if spec["ssh"] is None:
        yield Node(["sh", "-c"], remote=False, sudo_password=spec["sudo_password"])
        return
    with tempfile.TemporaryDirectory(prefix="disttrain-ssh-") as folder:
        master = ["-o", "ControlMaster=auto", "-o", f"ControlPath={folder}/master"]
        master += ["-o", f"ControlPersist={MASTER_SECONDS}"]
        ssh = ssh_command(spec["ssh"], Path(folder), *master)
        try:
            name = f"{spec['ssh']['host']}:{spec['ssh']['port']}"
            yield Node(ssh, remote=True, sudo_password=spec["sudo_password"], name=name)
        finally:
            # It fails if no connection was made, which is no error.
            end = [*ssh[:-1], "-O", "exit", ssh[-1]]
            subprocess.run(end, capture_output=True, check=False)

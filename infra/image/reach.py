"""From `$DISTTRAIN_NODE` to a node whose containerd is root's: this machine's, or one over SSH."""

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
    """The node that `text` tells of; None without a text: ctr is called as it is.

    All commands share one connection, so that each costs a round trip and not a login.

    Args:
        text: JSON with `ssh` (None: this machine, else see `ssh_command`) and `sudo_password`.
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
            # fails when no connection was made
            end = [*ssh[:-1], "-O", "exit", ssh[-1]]
            subprocess.run(end, capture_output=True, check=False)

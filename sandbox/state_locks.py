"""Releases locks that a killed `pulumi` left in a file backend. The engine never releases them."""

import getpass
import json
import socket
from pathlib import Path


def release_dead_locks(backend: Path, project: str, stack: str) -> list[int]:
    """Remove the locks that ended processes of this machine and user hold on the stack.

    Args:
        backend: folder of the stacks' states, as in `file://<backend>`.
        project: name of the Pulumi project.
        stack: name of the stack.

    Returns:
        The PIDs of those processes.
    """
    released: list[int] = []
    for file in (backend / ".pulumi" / "locks" / "organization" / project / stack).glob("*.json"):
        lock = json.loads(file.read_text())
        ours = (lock.get("hostname"), lock.get("username")) == (
            socket.gethostname(),
            getpass.getuser(),
        )
        if ours and not is_pulumi(lock["pid"]):
            file.unlink()
            released.append(lock["pid"])
    return released


def is_pulumi(pid: int) -> bool:
    """Whether the process runs and is a `pulumi`. Another program may have the PID by now."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    name, _, rest = status.partition("(")[2].rpartition(")")
    return name == "pulumi" and rest.split()[0] not in "ZX"

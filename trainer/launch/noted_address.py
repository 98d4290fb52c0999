"""The address of node 0, which it notes in the run's folder for the other nodes.

A pod that was made again has another address, and the DNS servers of a cluster may go on answering
with the old one: that of k3s for 5 s, others for 30 s. What is read here is only where to ask: node
0 has to prove that it holds the run's key (messages.py).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
from collections.abc import Callable
from pathlib import Path

ADDRESS_VARIABLE = "DISTTRAIN_POD_IP"
"""The pod's address, in the container's environment (infra/workloads/pod.py)."""
_FILE = ".node-0-address"


def note_address(run_dir: Path, address: str, say: Callable[[str], None]) -> None:
    """Write the address, in a thread: a volume that hangs must not hold up node 0.

    The file is written in place. A client of NFS that opens it asks the server whether it has
    changed, but goes on using an old file for a while where another one took its name.
    """

    def write() -> None:
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            (run_dir / _FILE).write_text(f"{address}\n")
        except OSError as error:
            say(f"warning: the address of node 0 cannot be noted in {run_dir}: {error}")

    threading.Thread(target=write, name="note-address", daemon=True).start()


def noted_address(run_dir: Path) -> str:
    """The address that node 0 has noted last; empty: there is none. It may be out of date.

    Raises:
        OSError: the volume cannot be read.
    """
    with os.scandir(run_dir) as entries:  # or a client of NFS could remember that there is no file
        next(entries, None)
    try:
        text = (run_dir / _FILE).read_text(errors="replace").strip()
        return str(ipaddress.ip_address(text))
    except (FileNotFoundError, ValueError):  # half of a text, while node 0 is writing
        return ""


def forget_address(run_dir: Path) -> None:
    """Remove the file, when the run is finished."""
    with contextlib.suppress(OSError):  # the run is finished all the same
        (run_dir / _FILE).unlink(missing_ok=True)

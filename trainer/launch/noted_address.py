"""Writes and reads the address of node 0, which node 0 notes in the run's folder for other nodes.

A pod that was made again has another address, and the DNS servers of a cluster may go on answering
with the old one: that of k3s for 5 s, others for 30 s. The file needs no trust: whoever answers at
the address has to prove that it holds the run's key (signed_lines.py).
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
    """Write the address in a thread, so that a volume that hangs does not hold up node 0.

    The file is overwritten, not replaced by a rename. An NFS client that opens a file asks the
    server whether that file has changed. But if another file took its name, the client goes on
    using the old file for a while.
    """

    def write() -> None:
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            (run_dir / _FILE).write_text(f"{address}\n")
        except OSError as error:
            say(f"warning: the address of node 0 cannot be noted in {run_dir}: {error}")

    threading.Thread(target=write, name="note-address", daemon=True).start()


def noted_address(run_dir: Path) -> str:
    """Return the address that node 0 noted last, which may be out of date; empty if there is none.

    Raises:
        OSError: the volume cannot be read.
    """
    # Without this, an NFS client may go on answering from its memory that there is no such file.
    with os.scandir(run_dir) as entries:
        next(entries, None)
    try:
        text = (run_dir / _FILE).read_text(errors="replace").strip()
        return str(ipaddress.ip_address(text))
    except (FileNotFoundError, ValueError):  # ValueError: node 0 is still writing the file
        return ""


def forget_address(run_dir: Path) -> None:
    """Remove the file when the run is finished."""
    with contextlib.suppress(OSError):  # the run is finished even if the file stays
        (run_dir / _FILE).unlink(missing_ok=True)

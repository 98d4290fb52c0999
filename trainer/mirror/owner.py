"""Notices that another volume fills the same mirror: each would remove the other's copies.

Two runs of one name may have one mirror by mistake, or the machine of a lost volume may come back.
The file OWNER_FILE beside the checkpoints in the mirror names the volume that has last begun to
fill it, and `mirror.json` on the volume has the same name.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from typing import Any

from trainer.launch.exit_codes import FatalError
from trainer.mirror.contents import OWNER_FILE
from trainer.mirror.remote_folder import DamagedError, RemoteFolder


def own(results: RemoteFolder, owner: str) -> str:
    """Make this volume the one that fills the mirror, and return its name.

    Args:
        results: The folder of the run in the mirror.
        owner: The name that an earlier call has returned on this volume; empty if there was none.

    Raises:
        FatalError: Another volume has begun to fill the mirror since then.
        StoreError: The store failed.
    """
    found = _read(results)
    if owner and found.get("id") == owner:
        return owner
    if owner and found:
        raise FatalError(
            f"checkpoint.mirror: another volume fills {results.url} since {found.get('since')} "
            f"(pod {found.get('pod')}), so nothing more is copied from this one. Give one of the "
            "two runs another run_name. If only this run goes on, remove the file "
            f"{results.url}/{OWNER_FILE} and start it again"
        )
    owner = owner or uuid.uuid4().hex
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    pod = os.environ.get("POD_NAME") or socket.gethostname()
    results.write(OWNER_FILE, json.dumps({"id": owner, "pod": pod, "since": since}).encode())
    return owner


def _read(results: RemoteFolder) -> dict[str, Any]:
    """Return the content of the file; empty if it is not there or damaged."""
    try:
        return dict(json.loads(results.read(OWNER_FILE) or b"{}"))
    except (DamagedError, ValueError, TypeError):
        return {}

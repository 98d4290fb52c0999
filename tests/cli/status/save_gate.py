"""Holds up the last step of every save, so that a test can see a run while it saves.

The pods get a module that Python imports when it starts. While the gate is closed, this module
delays the rename by which a checkpoint gets its final name. The rest of the save is the trainer's.
"""

from pathlib import Path

from infra.names import DATA_MOUNT
from sandbox.cluster import Cluster

FOLDER, CLOSED = "save-gate", "closed"  # on the volume
SETTINGS = {"podEnvironment.PYTHONPATH": f"{DATA_MOUNT}/{FOLDER}"}
MODULE = f"""
import os, time

rename = os.rename

def rename_once_open(source, target, **more):
    while ".tmp-step-" in str(source) and os.path.exists("{DATA_MOUNT}/{FOLDER}/{CLOSED}"):
        time.sleep(0.05)
    return rename(source, target, **more)

os.rename = rename_once_open
"""


class SaveGate:
    """The gate of the runs whose stack has `SETTINGS`; it is open at first."""

    def __init__(self, cluster: Cluster) -> None:
        (cluster.data_root / ".disttrain").touch()  # a platform refuses other folders with files
        folder = cluster.data_root / FOLDER
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(MODULE)
        self._closed: Path = folder / CLOSED

    def close(self) -> None:
        """Let no checkpoint get its final name from now on."""
        self._closed.touch()

    def open(self) -> None:
        """Let saves end from now on, also the one that was held up."""
        self._closed.unlink(missing_ok=True)

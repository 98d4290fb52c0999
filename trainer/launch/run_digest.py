"""What a node shows to the others, so that nodes of two versions never train together."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trainer.config import RunConfig, dump_config


def run_digest(config: RunConfig) -> str:
    """The sha256 of the run's configuration and of the trainer's code, in hexadecimal digits."""
    digest = hashlib.sha256(dump_config(config).encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()

"""The digest by which node 0 refuses nodes that have another configuration or other code."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trainer.config import RunConfig, dump_config


def run_digest(config: RunConfig) -> str:
    """Return the sha256 of the run's configuration and the trainer's code, in hexadecimal."""
    digest = hashlib.sha256(dump_config(config).encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()

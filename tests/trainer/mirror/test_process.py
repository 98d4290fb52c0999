"""The process of the mirror, where it cannot begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.mirror.checkpoints import write_checkpoint
from tests.trainer.mirror.volume import Volume
from trainer.config import RunConfig
from trainer.launch.exit_codes import FatalError
from trainer.mirror.process import run_mirror
from trainer.mirror.status import read_status


def test_mirror_that_cannot_begin_says_why(tmp_path: Path) -> None:
    """In mirror.json, which alerts and `./disttrain status` read, until a later start can copy."""
    settings = {
        "run_name": "words",
        "data_root": str(tmp_path),
        "checkpoint": {"mirror": "nosuch://x"},
        "dataset": {"file": "text"},
    }
    config = RunConfig.from_mapping(settings)
    write_checkpoint(config.run_dir / "checkpoints", 10)
    with pytest.raises(FatalError):
        run_mirror(config)
    status = read_status(config.run_dir)
    assert "checkpoint.mirror: 'nosuch://x/words/checkpoints' cannot be used" in status.problem
    assert status.problem_since is not None
    Volume(config.run_dir, f"file://{tmp_path}/mirror").push()
    assert read_status(config.run_dir).problem == ""

"""What the launcher of our trainer's ranks reads from the volume."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.config import RunConfig
from trainer.launch.node_output import NodeOutput
from trainer.launch.own_trainer import OwnTrainer
from trainer.launch.status_files import StatusFiles
from trainer.launch.work import is_newer
from trainer.program.record import growing_text


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("", "step-00000007"),
        ("step-00000009", "step-00000010"),
        ("step-99999999", "step-100000000"),
        (growing_text(0), growing_text(1)),
        (growing_text(9), growing_text(10)),
        (growing_text(99_999_999), growing_text(100_000_000)),
    ],
)
def test_later_checkpoint_is_newer_than_earlier(before: str, later: str) -> None:
    """Of the texts of both kinds of work, that of a later checkpoint is newer, and no text is newer
    than itself.
    """
    assert is_newer(later, before)
    assert not is_newer(before, later)
    assert not is_newer(before, before)


def test_newest_checkpoint_is_that_of_highest_step(tmp_path: Path) -> None:
    """The newest checkpoint is that of the highest step, also where its name has a digit more. A
    folder that has no checkpoint's name is not counted.
    """
    given = {"data_root": str(tmp_path), "dataset": {"file": "/text"}}
    config = RunConfig.from_mapping(given)
    work = OwnTrainer(config, [], 1, StatusFiles(tmp_path / "status"), NodeOutput(0, None))
    assert work.newest() == ""
    for name in ("step-99999999", "step-100000000", "step-of-somebody-else"):
        (config.run_dir / "checkpoints" / name).mkdir(parents=True)
    assert work.newest() == "step-100000000"

"""The process of the mirror when the mirror or the status file on the volume cannot be used."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.trainer.mirror.checkpoints import write_checkpoint
from tests.trainer.mirror.volume import Volume
from trainer.checkpoint.durable import write_json
from trainer.config import RunConfig
from trainer.launch import mirror as launch
from trainer.launch.exit_codes import ExitCode, FatalError
from trainer.launch.node_output import NodeOutput
from trainer.mirror import process, status
from trainer.mirror.process import run_mirror
from trainer.mirror.status import read_status


def test_mirror_that_cannot_begin_says_why(tmp_path: Path) -> None:
    """If a mirror cannot be used, `mirror.json` has the reason, which alerts and `./disttrain
    status` read, until a later start can copy.
    """
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
    found = read_status(config.run_dir)
    assert "checkpoint.mirror: 'nosuch://x/words/checkpoints' cannot be used" in found.problem
    assert found.problem_since is not None
    Volume(config.run_dir, f"file://{tmp_path}/mirror").push()
    assert read_status(config.run_dir).problem == ""


def test_end_does_not_depend_on_a_readable_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod ends as usual when the mirror's status cannot be read. Otherwise a volume that has
    failed would replace the pod's exit code and its last lines.
    """
    settings = {
        "run_name": "words",
        "data_root": str(tmp_path),
        "checkpoint": {"mirror": f"file://{tmp_path}/mirror", "mirror_wait_seconds": 1},
        "dataset": {"file": "text"},
    }
    config = RunConfig.from_mapping(settings)
    config.run_dir.mkdir(parents=True)
    (config.run_dir / status.STATUS_FILE).mkdir()  # not even root can read a folder as a file
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(launch, "own_command", lambda *_: command)
    said = list[str]()
    output = cast(NodeOutput, SimpleNamespace(pipe=lambda _: None, say=said.append))
    mirror = launch.MirrorProcess(config, [], 0, output)
    mirror.ensure_running()
    mirror.finish()
    assert mirror.pids() == []
    assert ["is not in the mirror yet (it takes longer)" in line for line in said] == [True]


def test_volume_that_refuses_the_status_does_not_end_the_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mirror goes on copying when its status cannot be written, as on a full volume, where the
    mirror matters most.
    """
    settings = {
        "run_name": "words",
        "data_root": str(tmp_path),
        "checkpoint": {"mirror": f"file://{tmp_path}/mirror"},
        "dataset": {"file": "text"},
    }
    config = RunConfig.from_mapping(settings)
    write_checkpoint(config.run_dir / "checkpoints", 10)
    refused = list[Path]()

    def write_when_there_is_room(path: Path, value: object) -> None:
        if len(refused) < 2:
            refused.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_json(path, value)

    monkeypatch.setattr(status, "write_json", write_when_there_is_room)
    monkeypatch.setattr(process, "_PAUSES_SECONDS", (0.0,))
    assert run_mirror(config) == ExitCode.DONE
    assert read_status(config.run_dir).newest_step == 10
    assert "No space left on device; training goes on" in capsys.readouterr().out

"""The process of the mirror when the mirror or the status file on the volume cannot be used."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.trainer.mirror.checkpoints import write_checkpoint
from tests.trainer.mirror.volume import Volume
from trainer.checkpoint.durable import write_json
from trainer.config import RunConfig
from trainer.launch import killing
from trainer.launch import mirror as launch
from trainer.launch.exit_codes import ExitCode, FatalError
from trainer.launch.node_output import NodeOutput
from trainer.mirror import process, status
from trainer.mirror.process import run_mirror
from trainer.mirror.status import read_status, step_being_copied, write_status


def _run_to_copy(tmp_path: Path) -> RunConfig:
    """Return the settings of a run that has a checkpoint of step 10 and a folder as its mirror."""
    settings = {
        "run_name": "words",
        "data_root": str(tmp_path),
        "checkpoint": {"mirror": f"file://{tmp_path}/mirror"},
        "dataset": {"file": "text"},
    }
    config = RunConfig.from_mapping(settings)
    write_checkpoint(config.run_dir / "checkpoints", 10)
    return config


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


def test_displaced_mirror_ends_and_says_why(tmp_path: Path) -> None:
    """The process of a mirror that another volume fills ends for good, and `mirror.json` has the
    reason. A checkpoint whose copy was cut off is held on the volume no longer.
    """
    config = _run_to_copy(tmp_path)
    assert run_mirror(config) == ExitCode.DONE
    other = Volume(tmp_path / "other", f"file://{tmp_path}/mirror")
    write_checkpoint(other.root, 20)
    other.push()
    write_checkpoint(config.run_dir / "checkpoints", 30)
    write_status(config.run_dir, replace(read_status(config.run_dir), copying_step=30))
    with pytest.raises(FatalError, match="another volume"):
        run_mirror(config)
    assert "another volume" in read_status(config.run_dir).problem
    assert step_being_copied(config.run_dir) is None


def test_end_does_not_depend_on_a_readable_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod ends as usual when the mirror's status cannot be read. Otherwise a volume that has
    failed would replace the pod's exit code and its last lines. The wait before that is announced.
    """
    settings = {
        "run_name": "words",
        "data_root": str(tmp_path),
        "checkpoint": {"mirror": f"file://{tmp_path}/mirror", "mirror_wait_seconds": 2},
        "dataset": {"file": "text"},
    }
    config = RunConfig.from_mapping(settings)
    (config.run_dir / "checkpoints" / "step-00000010").mkdir(parents=True)
    (config.run_dir / status.STATUS_FILE).mkdir()  # not even root can read a folder as a file
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(launch, "own_command", lambda *_: command)
    said = list[str]()
    output = cast(NodeOutput, SimpleNamespace(pipe=lambda _: None, say=said.append))
    mirror = launch.MirrorProcess(config, [], 0, output)
    mirror.ensure_running()
    mirror.finish()
    assert mirror.pids() == []
    assert len(said) == 2
    assert "for at most 2 s (checkpoint.mirror_wait_seconds)" in said[0]
    assert "is not in the mirror yet (it takes longer)" in said[1]


def test_run_without_a_checkpoint_does_not_wait_for_its_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends before its first checkpoint has nothing to copy. It waits for nothing, and
    does not say that a checkpoint is on the volume.
    """
    settings = {
        "run_name": "words",
        "data_root": str(tmp_path),
        "checkpoint": {"mirror": f"file://{tmp_path}/mirror", "mirror_wait_seconds": 60},
        "dataset": {"file": "text"},
    }
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(launch, "own_command", lambda *_: command)
    said = list[str]()
    output = cast(NodeOutput, SimpleNamespace(pipe=lambda _: None, say=said.append))
    mirror = launch.MirrorProcess(RunConfig.from_mapping(settings), [], 0, output)
    mirror.ensure_running()
    mirror.finish()
    assert mirror.pids() == []
    assert said == []


STANDS_STILL = """
import os, pathlib, sys, time
goes_on, is_over = map(pathlib.Path, sys.argv[1:])
deadline = time.monotonic() + 60
while not goes_on.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
is_over.touch()
"""


def test_process_that_cannot_be_killed_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod ends although the process of the mirror does not end when it is killed. A process that
    waits for a dead NFS server may never end.
    """
    goes_on, is_over = tmp_path / "goes-on", tmp_path / "is-over"
    settings = {
        "run_name": "words",
        "data_root": str(tmp_path),
        "checkpoint": {"mirror": f"file://{tmp_path}/mirror", "mirror_wait_seconds": 0},
        "dataset": {"file": "text"},
    }
    command = [sys.executable, "-c", STANDS_STILL, str(goes_on), str(is_over)]
    monkeypatch.setattr(launch, "own_command", lambda *_: command)
    monkeypatch.setattr(killing, "KILLED_SECONDS", 0.01)
    said = list[str]()
    output = cast(NodeOutput, SimpleNamespace(pipe=lambda _: None, say=said.append))
    config = RunConfig.from_mapping(settings)
    (config.run_dir / "checkpoints" / "step-00000010").mkdir(parents=True)
    mirror = launch.MirrorProcess(config, [], 0, output)
    mirror.ensure_running()
    killed: list[subprocess.Popen[bytes]] = []
    with monkeypatch.context() as stuck:
        stuck.setattr(subprocess.Popen, "kill", lambda each: killed.append(each))
        mirror.finish()
    assert mirror.pids() == []
    assert ["is not in the mirror yet" in line for line in said] == [True]
    assert not is_over.exists()  # it would be, if anything had waited for the process
    for each in killed:
        each.kill()
        each.wait(60)


def test_volume_that_refuses_the_status_does_not_end_the_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mirror goes on copying when its status cannot be written, as on a full volume, where the
    mirror matters most.
    """
    config = _run_to_copy(tmp_path)
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

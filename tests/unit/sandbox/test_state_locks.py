"""A lock of a Pulumi state is released only if its process is surely gone."""

import getpass
import json
import os
import socket
from pathlib import Path

import pytest

from sandbox.state_locks import release_dead_locks

NO_PROCESS = 2**22 + 1  # above the largest PID of Linux


def lock(backend: Path, **changes: object) -> Path:
    """Write a lock of this user on this machine, by a process that does not exist, with these
    changes.
    """
    folder = backend / ".pulumi/locks/organization/disttrain/dev"
    folder.mkdir(parents=True)
    file = folder / "one.json"
    here = {"hostname": socket.gethostname(), "username": getpass.getuser()}
    file.write_text(json.dumps({"pid": NO_PROCESS, **here, **changes}))
    return file


def test_lock_of_a_process_that_is_gone_is_released(tmp_path: Path) -> None:
    file = lock(tmp_path)
    assert release_dead_locks(tmp_path, "disttrain", "dev") == [NO_PROCESS]
    assert not file.exists()


def test_number_that_another_program_has_now_is_no_lock(tmp_path: Path) -> None:
    """A lock is released if another program than Pulumi has its process number now."""
    file = lock(tmp_path, pid=os.getpid())
    assert release_dead_locks(tmp_path, "disttrain", "dev") == [os.getpid()]
    assert not file.exists()


@pytest.mark.parametrize("whose", [{"hostname": "another"}, {"username": "somebody"}])
def test_locks_of_others_stay(tmp_path: Path, whose: dict[str, str]) -> None:
    file = lock(tmp_path, **whose)
    assert release_dead_locks(tmp_path, "disttrain", "dev") == []
    assert file.exists()


def test_other_stacks_and_missing_folders_are_left_alone(tmp_path: Path) -> None:
    file = lock(tmp_path)
    assert release_dead_locks(tmp_path, "disttrain", "multipod") == []
    assert file.exists()

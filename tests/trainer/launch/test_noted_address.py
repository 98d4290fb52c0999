"""Node 0 leaves its address in the run's folder, where the other nodes find it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from infra.workloads.pod import ADDRESS_VARIABLE as GIVEN
from tests.trainer.launch.waiting import LIMIT_SECONDS, wait_until
from trainer.launch.noted_address import (
    ADDRESS_VARIABLE,
    forget_address,
    note_address,
    noted_address,
)

FILE = ".node-0-address"


def test_pods_have_the_variable_that_is_read() -> None:
    """The pods set their address in the variable that the trainer reads."""
    assert GIVEN == ADDRESS_VARIABLE


@pytest.mark.parametrize("address", ["10.42.0.7", "fd00:10:42::7"])
def test_noted_address_is_read_until_forgotten(tmp_path: Path, address: str) -> None:
    """The address of node 0 is read until node 0 removes it, also in a run without a folder yet,
    and when it replaces an older address.
    """
    run_dir = tmp_path / "runs" / "new"
    for each in ("10.42.0.1", address):
        note_address(run_dir, each, pytest.fail)
        wait_until(lambda each=each: run_dir.exists() and noted_address(run_dir) == each)
    forget_address(run_dir)
    forget_address(run_dir)
    assert list(run_dir.iterdir()) == []
    assert noted_address(run_dir) == ""


def test_file_keeps_its_identity(tmp_path: Path) -> None:
    """A new address is written into the same file. A client of NFS may go on using the old file if
    another one takes its name.
    """
    seen = set[int]()
    for address in ("10.42.0.1", "10.42.0.2"):
        note_address(tmp_path, address, pytest.fail)
        wait_until(lambda address=address: noted_address(tmp_path) == address)
        seen.add((tmp_path / FILE).stat().st_ino)
    assert len(seen) == 1


@pytest.mark.parametrize("text", ["", "10.42.0", "evil.example", "\x00", "10.42.0.7 10.42.0.8"])
def test_what_is_no_address_is_none(tmp_path: Path, text: str) -> None:
    """Text that is no IP address is treated as if there were none."""
    (tmp_path / FILE).write_text(text)
    assert noted_address(tmp_path) == ""


def test_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Reading the address from a folder that cannot be read raises an `OSError`."""
    with pytest.raises(OSError, match="No such file"):
        noted_address(tmp_path / "none")


def test_volume_that_refuses_is_said_once(tmp_path: Path) -> None:
    """An address that cannot be written gives a warning, and the run goes on: the other nodes find
    node 0 by its name.
    """
    (tmp_path / "file").write_text("")
    said = list[str]()
    note_address(tmp_path / "file" / "run", "10.42.0.7", said.append)
    wait_until(lambda: bool(said))
    assert "warning: the address of node 0 cannot be noted in" in said[0]


def test_volume_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """Noting the address does not wait for a volume that hangs. A pipe stands in for the file,
    because opening it waits for a reader.
    """
    os.mkfifo(tmp_path / FILE)
    note_address(tmp_path, "10.42.0.7", pytest.fail)
    read = list[str]()
    reader = threading.Thread(target=lambda: read.append((tmp_path / FILE).read_text()))
    reader.start()
    reader.join(LIMIT_SECONDS)
    assert read == ["10.42.0.7\n"]

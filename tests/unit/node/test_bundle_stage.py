"""The script that makes the folder of a bundle's files on a machine, run for real."""

import hashlib
import shutil
import signal
from pathlib import Path

import pytest

from infra.airgap.manifest import Entry
from infra.airgap.send import send
from infra.image.node import Node
from tests.unit.run_script import run


class Machine:
    """The folder on a machine, and what is beside it."""

    def __init__(self, folder: Path) -> None:
        (folder / "run").mkdir()
        self.folder, self.stage = folder, folder / "stage"

    def act(self, action: str, **more: str) -> str:
        """Run the script, which must not fail; return its output."""
        place = {"STAGE": str(self.stage), "ROOT": str(self.folder)}
        done = run("bundle-stage.sh", action, **place, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def left(self) -> list[str]:
        """Return the names of all that is on the machine beside the locks."""
        return [path.name for path in self.folder.iterdir() if path.name != "run"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    folder = tmp_path / "machine"
    folder.mkdir()
    return Machine(folder)


def test_machine_that_has_another_name_keeps_its_bundle(machine: Machine) -> None:
    """The bundle's files stay if they are deleted under a name that the machine no longer has. k3s
    is repaired from these files.
    """
    act, stage = machine.act, machine.stage
    act("create", NODE="gpu2")
    (stage / "k3s").write_text("k3s")
    act("create", NODE="gpu3")
    assert "this host is the node gpu3 by now" in act("delete", NODE="gpu2")
    assert (stage / "k3s").exists()
    assert "this host is the node gpu3 by now" in act("delete")
    act("create")
    assert "this host is the first machine by now" in act("delete", NODE="gpu3")
    act("delete")
    assert not stage.exists()


@pytest.mark.parametrize("killed", ["mkdir", "mv"])
@pytest.mark.parametrize("node", ["gpu2", ""])
def test_create_that_was_killed_leaves_nothing_behind_delete(
    machine: Machine, tmp_path: Path, node: str, killed: str
) -> None:
    """`delete` removes what a `create` has made that was killed when it had made the folder, or
    before the mark of whose it is had its name.
    """
    programs, name = tmp_path / "programs", {"NODE": node} if node else {"OWNER": "owner-a"}
    programs.mkdir()
    first = f'{shutil.which("mkdir")} "$@" && [ "$1" = -m ] &&' if killed == "mkdir" else ""
    (programs / killed).write_text(f"#!/bin/sh\n{first} kill -KILL $PPID || :\n")
    (programs / killed).chmod(0o755)
    place = {"STAGE": str(machine.stage), "ROOT": str(machine.folder)}
    done = run("bundle-stage.sh", "create", BIN=str(programs), **place, **name)
    assert done.returncode == -signal.SIGKILL
    assert machine.left() != []
    machine.act("delete", **name)
    assert machine.left() == []


@pytest.mark.parametrize("node", ["gpu2", ""])
def test_files_that_were_sent_are_removed(machine: Machine, tmp_path: Path, node: str) -> None:
    """`delete` removes the files of a bundle that were sent to a machine. The mark of whose they
    are is beside the folder, because sending replaces all that is in the folder.
    """
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/k3s").write_text("k3s")
    entry = Entry("k3s", "k3s", "v1", 3, hashlib.sha256(b"k3s").hexdigest(), "")
    name = {"NODE": node} if node else {}
    machine.act("create", **name)
    here = Node(["sh", "-c"], remote=False)
    send(here, tmp_path / "bundle", [entry], str(machine.stage), lambda _: None)
    assert (machine.stage / "k3s").exists()
    assert machine.act("delete", **name) == f"{machine.stage} is removed\n"
    assert machine.left() == []


def test_files_of_another_stack_stay(machine: Machine) -> None:
    """If two stacks list one machine, the second one is refused and cannot remove the files of the
    first one. Files of an older version, which name no stack, go to the first stack that comes.
    """
    ann, bob = {"OWNER": "owner-a", "STACK": "ann"}, {"OWNER": "owner-b", "STACK": "bob"}
    machine.act("create")  # as by an older version, which names no stack
    (machine.stage / "k3s").write_text("k3s")
    machine.act("create", **ann)
    with pytest.raises(AssertionError, match=r"bundle: .* the files of another stack \(ann\)"):
        machine.act("create", **bob)
    assert "belongs to another stack (ann)" in machine.act("delete", **bob)
    assert (machine.stage / "k3s").exists()
    machine.act("delete", **ann)
    assert machine.left() == []
    machine.act("create", **bob)

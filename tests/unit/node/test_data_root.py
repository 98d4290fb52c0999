"""The script data-root.sh, which makes and purges the data folder on a machine, run for real as
root.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from infra.node.shell_program import assemble_program, script_text
from tests.unit.run_script import run, run_text

MARKER = ".disttrain"


def create(root: Path | str) -> subprocess.CompletedProcess[str]:
    return run("data-root.sh", "create", DATA_ROOT=str(root))


def purge(root: Path) -> subprocess.CompletedProcess[str]:
    return run("data-root.sh", "delete", DATA_ROOT=str(root), PURGE=str(root))


def state(path: Path) -> tuple[int, int, int]:
    """Return the owner's number, the group's number and the mode of a file."""
    info = path.stat()
    return info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)


def refused(root: Path | str) -> str:
    """Try to make the data folder, which has to fail; return the error."""
    done = create(root)
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith(f"dataRoot: {root} ")
    return done.stderr


def test_data_root_is_made_for_the_trainers_user_and_never_removed(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for _ in range(2):
        done = create(root)
        assert done.returncode == 0, done.stderr
    for folder in (root, root / "datasets" / ".incoming", root / "runs"):
        assert state(folder) == (1000, 1000, 0o755)
    (root / "runs" / "checkpoint").write_text("precious")
    assert "kept" in run("data-root.sh", "delete", DATA_ROOT=str(root)).stdout
    assert (root / "runs" / "checkpoint").read_text() == "precious"


def test_data_root_right_below_the_root_folder_is_made_and_removed() -> None:
    """A folder without another one above it, such as /data, is made like any other."""
    root = Path(tempfile.mkdtemp(prefix="disttrain-tests-", dir="/"))
    root.rmdir()
    try:
        done = create(root)
        assert (done.returncode, done.stdout) == (0, f"{root} is there\n"), done.stderr
        assert state(root) == (1000, 1000, 0o755)
        purge(root)
        assert not root.exists()
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("action", ["create", "delete"])
def test_nothing_is_done_without_a_folder(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a data folder, as where an NFS server holds the data, the script does nothing and
    says so. It does not take the folder in which it runs for the data's.
    """
    create(tmp_path)
    (tmp_path / "runs" / "checkpoint").write_text("precious")
    before = {path: state(path) for path in tmp_path.rglob("*")}
    monkeypatch.chdir(tmp_path)
    done = run("data-root.sh", action, DATA_ROOT="", PURGE="")
    assert {path: state(path) for path in tmp_path.rglob("*")} == before
    assert (done.returncode, done.stdout) == (0, "no folder of this host holds the data\n")


def test_second_create_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "data"
    create(root)

    def times() -> dict[str, int]:
        return {str(path): path.stat().st_ctime_ns for path in [root, *root.rglob("*")]}

    before = times()
    create(root)
    assert times() == before


def test_data_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/etc")
    for name in ("file", "link"):
        assert "is not a folder" in refused(tmp_path / name)


def test_data_root_behind_a_link_is_refused_with_the_real_path(tmp_path: Path) -> None:
    """A `dataRoot` that leads through a link is refused, and the error has the real path. Otherwise
    root would act on a folder that whoever can change the link chooses.
    """
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert f"leads to {tmp_path}/real/data" in refused(tmp_path / "link" / "data")
    assert not (tmp_path / "real" / "data").exists()


@pytest.mark.parametrize("name", ["runs", "datasets", "datasets/.incoming"])
def test_link_below_the_data_root_is_not_followed(tmp_path: Path, name: str) -> None:
    """A link in place of a folder below the data folder is refused, and what it leads to stays as
    it is. Otherwise a pod could replace `runs` by a link to /etc, and `up` would give /etc to the
    pods' user.
    """
    root, private = tmp_path / "data", tmp_path / "private"
    create(root)
    private.mkdir(mode=0o700)
    folder = root / name
    for inner in sorted(folder.rglob("*"), reverse=True):
        inner.rmdir()
    folder.rmdir()
    folder.symlink_to(private)
    assert f"holds {name}, which is a link" in refused(root)
    assert state(private) == (0, 0, 0o700)


def test_purge_takes_the_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    """A purge removes a link that is in the data folder, but not the files to which the link
    leads.
    """
    root, private = tmp_path / "data", tmp_path / "private"
    create(root)
    private.mkdir()
    (private / "precious").touch()
    (root / "runs").rmdir()
    (root / "runs").symlink_to(private)
    assert purge(root).returncode == 0
    assert (private / "precious").exists()
    assert not root.exists()


@pytest.mark.parametrize(
    "root",
    ["/", "/root", "/root/data", "/home", "/home/admin", "/etc/data", "/usr", "/var/lib", "/tmp"],
)
def test_folder_of_the_system_is_refused(root: str) -> None:
    """A folder of the system or the home of a user is refused as `dataRoot`. If /root became the
    pods' user's, sshd would refuse root's keys.
    """
    before = Path("/root").stat()
    refused(root)
    after = Path("/root").stat()
    assert (before.st_uid, before.st_mode) == (after.st_uid, after.st_mode)


def test_relative_path_is_refused() -> None:
    assert "is not an absolute path" in refused("data")


def test_folder_with_files_of_others_is_refused(tmp_path: Path) -> None:
    """A data folder in which somebody else has files is refused, with the command that allows it.
    Otherwise `up` would give these files to the pods' user.
    """
    (tmp_path / "photos").mkdir()
    before = state(tmp_path)
    message = refused(tmp_path)
    assert "holds files that this program did not make (photos )" in message
    assert f"touch {tmp_path}/{MARKER}" in message
    assert state(tmp_path) == before
    (tmp_path / MARKER).touch()
    assert create(tmp_path).returncode == 0


def test_create_that_was_killed_while_it_wrote_the_mark_is_completed(tmp_path: Path) -> None:
    """The new text of the mark, which a killed `create` has left, is no file of others: the next
    `create` completes the folder, and a purge removes the file too.
    """
    root = tmp_path / "data"
    root.mkdir()
    for action in (create, purge):
        (root / f"{MARKER}.new").write_text("owner owner-a\n")
        os.chown(root / f"{MARKER}.new", 1000, 1000)
        done = action(root)
        assert done.returncode == 0, done.stderr
        assert action == purge or (root / MARKER).exists()
    assert not root.exists()


def test_new_disk_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir(mode=0o700)
    assert create(tmp_path).returncode == 0
    assert state(tmp_path / "lost+found") == (0, 0, 0o700)


def test_data_root_in_a_folder_that_others_may_not_enter(tmp_path: Path) -> None:
    """The data folder can be in a folder that only root may enter. Pods get it through the kubelet,
    which may enter it.
    """
    tmp_path.chmod(0o700)
    assert create(tmp_path / "data").returncode == 0
    assert state(tmp_path / "data" / "runs") == (1000, 1000, 0o755)


def test_strict_umask_of_root_does_not_close_the_folder(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        root = tmp_path / "new" / "data"
        done = run_text(script_text("data-root.sh"), "create", {"DATA_ROOT": str(root)}, "root", {})
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr
    assert state(root) == (1000, 1000, 0o755)
    assert state(root.parent) == (0, 0, 0o755)


def test_dry_data_root_changes_nothing_and_says_what_it_would(tmp_path: Path) -> None:
    root = tmp_path / "data"
    done = run("data-root.sh", "create", DATA_ROOT=str(root), DRY_RUN="1")
    assert f"would make: {root}/runs" in done.stdout
    assert not root.exists()


@pytest.mark.parametrize("value", ["", "/somewhere/else"])
def test_data_is_not_purged_unless_its_own_path_says_so(tmp_path: Path, value: str) -> None:
    create(tmp_path)
    done = run("data-root.sh", "delete", DATA_ROOT=str(tmp_path), PURGE=value)
    assert "are kept" in done.stdout
    assert (tmp_path / "runs").is_dir()


def test_purge_takes_only_what_is_ours(tmp_path: Path) -> None:
    """A purge leaves files that this program did not make. After it the folder is no longer ours: a
    new `up` refuses it because of these files.
    """
    root = tmp_path / "data"
    create(root)
    (root / "notes").touch()
    done = purge(root)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in root.iterdir()] == ["notes"]
    again = create(root)  # without the mark the folder is not ours any more
    assert again.returncode != 0
    assert f"touch {root / MARKER}" in again.stderr


def test_purge_leaves_a_folder_of_others(tmp_path: Path) -> None:
    """A purge removes nothing in a folder that this program did not make, even if it has a folder
    `runs`.
    """
    (tmp_path / "runs").mkdir()
    assert "is not ours" in purge(tmp_path).stdout
    assert (tmp_path / "runs").is_dir()


# --- two stacks on one machine ---

ANN = {"OWNER": "owner-a", "STACK": "ann"}
BOB = {"OWNER": "owner-b", "STACK": "bob"}


def of_stack(stack: Mapping[str, str], action: str, root: Path, **more: str) -> str:
    """Run the script for this stack, which must succeed; return its output."""
    done = run("data-root.sh", action, DATA_ROOT=str(root), **stack, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_folder_of_another_stack_is_refused(tmp_path: Path) -> None:
    """A second stack cannot use or purge the data folder of a stack that still exists. With the
    default folder, the second stack's purge would otherwise delete all data of the first one.
    """
    root = tmp_path / "data"
    of_stack(ANN, "create", root)
    (root / "runs/checkpoint").write_text("precious")
    done = run("data-root.sh", "create", DATA_ROOT=str(root), **BOB)
    assert done.returncode == 1
    assert f"dataRoot: {root} belongs to another stack (ann). Choose another" in done.stderr
    assert f"truncate -s 0 {root}/{MARKER}" in done.stderr
    for more in ({}, {"PURGE": str(root)}):
        said = of_stack(BOB, "delete", root, **more)
        assert said == f"{root} belongs to another stack (ann), and stays as it is\n"
    assert (root / "runs/checkpoint").read_text() == "precious"
    of_stack(ANN, "create", root)
    of_stack(ANN, "delete", root, PURGE=str(root))
    assert not root.exists()


def begun(root: Path, path: str, stack: Mapping[str, str]) -> subprocess.Popen[str]:
    """Begin `create` for a stack, with this PATH."""
    process = subprocess.Popen(
        ["/bin/sh", "-s", "--", "create"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": path},
    )
    assert process.stdin is not None
    variables = {"DATA_ROOT": str(root), **stack}
    process.stdin.write(assemble_program(script_text("data-root.sh"), variables, "user"))
    process.stdin.close()
    process.stdin = None
    return process


def test_two_stacks_that_meet_take_turns(tmp_path: Path) -> None:
    """If two stacks take a new folder at the same time, one of them gets it, and the other one is
    refused. Otherwise both would think that it is theirs.
    """
    root, gate, programs = tmp_path / "data", tmp_path / "gate", tmp_path / "bin"
    os.mkfifo(gate)
    programs.mkdir()
    real = shutil.which("setpriv")
    slow = f'#!/bin/sh\n[ ! -e {gate} ] || cat {gate}\nexec {real} "$@"\n'
    (programs / "setpriv").write_text(slow)
    (programs / "setpriv").chmod(0o755)
    first = begun(root, f"{programs}:{os.environ['PATH']}", ANN)
    writer = -1
    while writer < 0 and first.poll() is None:
        with suppress(OSError):  # until the first run has come to the stand-in and reads
            writer = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    second = begun(root, os.environ["PATH"], BOB)
    assert second.stderr is not None
    said = second.stderr.readline()
    gate.unlink()
    os.close(writer)
    first.communicate()
    _, refusal = second.communicate()
    assert (first.returncode, second.returncode) == (0, 1), said
    assert "another run is at work on this host" in said
    assert "belongs to another stack (ann)" in refusal
    assert (root / MARKER).read_text() == "owner owner-a\nstack ann\n"
    number = subprocess.run(["cksum"], input=str(root), capture_output=True, text=True, check=True)
    assert not Path(f"/run/disttrain-data-{number.stdout.split()[0]}.lock").exists()


def test_kept_data_are_for_the_next_stack(tmp_path: Path) -> None:
    """When the stack that has made the data is destroyed without a purge, a stack of another name
    can go on with them. The former stack cannot purge them then.
    """
    root = tmp_path / "data"
    of_stack(ANN, "create", root)
    (root / "runs/checkpoint").write_text("precious")
    assert "are kept" in of_stack(ANN, "delete", root)
    of_stack(BOB, "create", root)
    assert (root / "runs/checkpoint").read_text() == "precious"
    assert "belongs to another stack (bob)" in of_stack(ANN, "delete", root, PURGE=str(root))


def test_second_delete_does_not_say_that_purged_data_are_kept(tmp_path: Path) -> None:
    """`pulumi destroy` runs `delete` twice, the second time without a purge, for a `create` that
    was killed. Where the first one has purged the data, the second one does not say that they are
    kept.
    """
    root = tmp_path / "data"
    of_stack(BOB, "create", root)
    of_stack(BOB, "delete", root, PURGE=str(root))
    assert of_stack(BOB, "delete", root) == f"{root} is not there\n"
    assert not root.exists()


def test_folder_of_an_older_version_is_used(tmp_path: Path) -> None:
    """A data folder that an older version has made names no stack, and the next stack gets it. Only
    the mark is written anew, and a further run changes nothing.
    """
    root = tmp_path / "data"
    create(root)
    (root / MARKER).write_text("")
    os.chown(root / MARKER, 0, 0)  # as made by an administrator
    made = {path: path.stat().st_ctime_ns for path in root.rglob("*") if path.name != MARKER}
    of_stack(ANN, "create", root)
    assert (root / MARKER).read_text() == "owner owner-a\nstack ann\n"
    noted = (root / MARKER).stat()
    of_stack(ANN, "create", root)
    create(root)  # without a stack, as by hand
    assert (root / MARKER).stat() == noted
    assert {path: path.stat().st_ctime_ns for path in made} == made


def test_mark_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link in the place of the mark's new file is not followed. The pods' user could make such a
    link, and the same user number may belong to a person on the host, whose file would be
    overwritten.
    """
    root, private = tmp_path / "data", tmp_path / "private"
    private.write_text("precious")
    os.chown(private, 1000, 1000)
    create(root)
    (root / f"{MARKER}.new").symlink_to(private)
    of_stack(ANN, "create", root)
    of_stack(ANN, "delete", root)
    assert private.read_text() == "precious"

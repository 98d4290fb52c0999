"""The program of `runs` in the pod: what it sees of runs, and how it deletes one."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli.fetch import pod_program as fetch_program
from cli.push.local_run import read_run
from cli.runs import pod_deletion, pod_metrics, pod_program
from cli.runs.program import PROGRAM
from tests.cli.fetch.local_pod import add_checkpoint, make_run
from trainer.checkpoint.store import directory_of, step_of


def test_program_needs_the_standard_library_alone(tmp_path: Path) -> None:
    """The program works as in the pod: as one text, without this project and its packages."""
    make_run(tmp_path / "demo")

    def asked(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-I", "-S", "-c", PROGRAM, *words]
        return json.loads(subprocess.run(command, cwd="/", capture_output=True, check=True).stdout)

    assert [run["name"] for run in asked("list", str(tmp_path))["runs"]] == ["demo"]
    assert asked("curves", str(tmp_path), "demo", "10")["loss"]
    assert asked("delete", str(tmp_path), "demo") == {"state": "deleted"}


def test_last_values_and_the_lowest_validation_loss_are_found(tmp_path: Path) -> None:
    """The program reports the last values and the lowest validation loss of a run's metrics. A torn
    last line is left out.
    """
    path = tmp_path / "metrics.jsonl"
    records = [
        {"step": 1, "loss": 4.0, "val_loss": None},
        {"step": 2, "loss": 3.0, "val_loss": 2.5, "tokens": 200},
        {"step": 3, "loss": 2.0, "val_loss": 2.75, "tokens": 300},
        {"step": 4, "loss": None, "val_loss": None, "tokens": 400},
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in records) + '{"step": 5, "lo')
    found = pod_metrics.metrics(path)
    assert (found["step"], found["tokens"]) == (4, 400)
    assert (found["loss"], found["val_loss"]) == (2.0, 2.75)
    assert (found["lowest_val_loss"], found["lowest_val_loss_step"]) == (2.5, 2)
    assert pod_metrics.metrics(tmp_path / "none")["step"] is None


def test_newest_checkpoint_is_one_that_is_whole(tmp_path: Path) -> None:
    """The newest checkpoint that is reported is a complete one."""
    run = make_run(tmp_path / "demo", steps=(100,))
    (add_checkpoint(run, 200) / "layout.json").unlink()
    found = pod_program.one_run(run)
    assert found["checkpoint_step"] == 100
    assert found["bytes"] == sum(p.stat().st_size for p in run.rglob("*") if p.is_file())
    assert pod_program.newest_checkpoint(tmp_path / "none") == (None, None)


def test_newest_checkpoint_may_have_nine_digits(tmp_path: Path) -> None:
    """A checkpoint of a step with nine digits is seen by `runs`, `fetch` and `push`. Otherwise its
    step would be unknown, and `fetch` would take an older checkpoint for the newest.
    """
    run = make_run(tmp_path / "demo", steps=(99_999_999, 100_000_000))
    assert pod_program.one_run(run)["checkpoint_step"] == 100_000_000
    of_fetch = ["step-100000000", "step-99999999"]
    assert fetch_program.steps(run / "checkpoints") == of_fetch
    assert "checkpoints/step-100000000/manifest.json" in [each.name for each in read_run(run)]


def test_only_the_runs_that_were_named_are_read(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_run(tmp_path / name)
    answer = pod_program.runs(tmp_path, ["two", "three"])
    assert [each["name"] for each in answer["runs"]] == ["two"]  # pyright: ignore
    nothing = pod_program.runs(tmp_path / "none", [])
    assert (nothing["runs"], nothing["free_bytes"]) == ([], None)


def test_room_is_that_of_the_disk(tmp_path: Path) -> None:
    """The free and the total room are those of the volume's disk."""
    answer = pod_program.runs(tmp_path, [])
    total = shutil.disk_usage(tmp_path).total
    assert answer["total_bytes"] == total
    assert isinstance(answer["free_bytes"], int)
    assert 0 <= answer["free_bytes"] <= total


def test_deleted_run_is_gone_and_others_stay(tmp_path: Path) -> None:
    """Deleting a run removes it and the rest of an earlier removal of it that was cut off, and no
    other run.
    """
    for name in ("one", "two"):
        make_run(tmp_path / name)
    (tmp_path / ".deleted-0123456789ab-one").mkdir()  # a removal that was cut off
    assert pod_deletion.delete(tmp_path, "one") == {"state": "deleted"}
    assert [path.name for path in tmp_path.iterdir()] == ["two"]
    assert pod_deletion.delete(tmp_path, "one") == {"state": "missing"}


def test_rest_of_a_removal_can_be_removed_by_its_name(tmp_path: Path) -> None:
    """The rest of a removal that was cut off is listed, and can be deleted by its own name."""
    rest = make_run(tmp_path / ".deleted-0123456789ab-one")
    assert [each["name"] for each in pod_program.runs(tmp_path, [])["runs"]] == [rest.name]  # pyright: ignore
    assert pod_deletion.delete(tmp_path, rest.name) == {"state": "deleted"}
    assert list(tmp_path.iterdir()) == []


def test_run_whose_lock_is_held_is_not_deleted(tmp_path: Path) -> None:
    """A run that a training process holds by its lock is not deleted."""
    run = make_run(tmp_path / "demo")
    with (run / "run.lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert pod_deletion.delete(tmp_path, "demo") == {"state": "locked"}
        assert (run / "metrics.jsonl").exists()
    assert pod_deletion.delete(tmp_path, "demo") == {"state": "deleted"}


def test_link_is_no_run_that_could_be_deleted(tmp_path: Path) -> None:
    """A link is not deleted, and neither is the folder it leads to."""
    run = make_run(tmp_path / "elsewhere" / "demo")
    (tmp_path / "demo").symlink_to(run)
    assert pod_deletion.delete(tmp_path, "demo") == {"state": "link"}
    assert (run / "metrics.jsonl").exists()


def asked_by_a_user(*words: str) -> dict[str, Any]:
    """Return the program's answer to user 1000, as in the pod. Unlike root, this user may not open
    every folder.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            if os.geteuid() == 0:
                os.setuid(1000)
            os.dup2(writer, 1)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            pod_program.main(list(words))
            sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that every user may read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_run_that_cannot_be_read_hides_no_other(open_folder: Path) -> None:
    """A run that the pod's user may not read, in whole or in part, is listed with the reason, and
    the other runs are listed too. A run has such parts if root has written to it from a pod of its
    own.
    """
    for name in ("closed", "half", "open"):
        make_run(open_folder / name)
    (open_folder / "closed").chmod(0)
    (open_folder / "half" / "checkpoints").chmod(0)
    try:
        closed, half, opened = asked_by_a_user("list", str(open_folder))["runs"]
    finally:
        (open_folder / "closed").chmod(0o755)
        (open_folder / "half" / "checkpoints").chmod(0o755)
    assert (closed["name"], closed["problem"]) == ("closed", "Permission denied: closed")
    assert (half["step"], half["checkpoint_step"]) == (99, None)
    assert half["problem"] == "Permission denied: half/checkpoints"
    assert (opened["checkpoint_step"], opened["problem"]) == (100, "")


@pytest.mark.parametrize(
    ("closed", "mode"), [("demo", 0o700), ("demo", 0o755), ("demo/checkpoints", 0o755)]
)
def test_run_that_cannot_be_removed_keeps_its_name(
    open_folder: Path, closed: str, mode: int
) -> None:
    """A run of which a part cannot be removed is left whole under its name. Otherwise half of it
    would be left under a name that nobody knows.
    """
    open_folder.chmod(0o777)
    run = make_run(open_folder / "demo")
    (run / "nothing").mkdir()  # a user who may change the folder above can remove it
    for path in (run, *run.rglob("*")):
        path.chmod(0o777)
    (run / "nothing").chmod(0o755)
    (open_folder / closed).chmod(mode if os.geteuid() == 0 else mode & 0o555)
    before = sorted(open_folder.rglob("*"))
    answer = asked_by_a_user("delete", str(open_folder), "demo")
    assert answer == {"state": "closed", "path": str(open_folder / closed)}
    assert sorted(open_folder.rglob("*")) == before
    (open_folder / closed).chmod(0o777)
    assert asked_by_a_user("delete", str(open_folder), "demo") == {"state": "deleted"}


def test_run_that_goes_while_it_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is deleted while the list is made is left out of the list."""
    for name in ("going", "staying"):
        make_run(tmp_path / name)
    found = pod_program.newest_checkpoint

    def remove_first(root: Path) -> tuple[int | None, float | None]:
        if root.parent.name == "going":
            shutil.rmtree(root.parent)
        return found(root)

    monkeypatch.setattr(pod_program, "newest_checkpoint", remove_first)
    names = [each["name"] for each in pod_program.runs(tmp_path, [])["runs"]]  # pyright: ignore
    assert names == ["staying"]


@pytest.mark.parametrize("pattern", [pod_program.STEP, fetch_program.STEP])
def test_folders_of_checkpoints_are_those_of_the_trainer(pattern: str) -> None:
    """The programs in pods import nothing of the trainer, so each has the pattern once more."""
    made = [directory_of(Path("checkpoints"), step).name for step in (0, 7, 99_999_999, 10**9)]
    others = ["step-7", "step-0000007", "step-00000007x", "step--0000007", ".tmp-step-00000007"]
    others += ["damaged-step-00000007", "step-", "step-00000007\n", "Step-00000007"]
    for name in (*made, *others):
        assert bool(re.fullmatch(pattern, name)) == (step_of(name) is not None) == (name in made)

"""`push` sends only a run's folder that is whole, under a name that is free."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.push import command
from cli.push.command import name_of_run, push, refusal
from cli.push.local_run import LocalFile, key_of, read_run
from infra.kube.errors import TaskError
from tests.cli.fetch.local_pod import add_checkpoint, contents, make_run


def test_all_files_are_found_and_the_manifest_is_last(tmp_path: Path) -> None:
    """`push` sends the files of a run and leaves out what is no part of it: the record of a fetch,
    unfinished checkpoints and files that no manifest lists. The manifests come last, because they
    make a checkpoint complete.
    """
    run = make_run(tmp_path / "demo", steps=(100, 200))
    (run / ".disttrain-fetch.json").write_text("{}")
    (run / "checkpoints" / ".tmp-step-00000300-x").mkdir()
    (run / "checkpoints" / ".tmp-step-00000300-x" / "model-00000.bin").write_bytes(b"half")
    (run / "checkpoints" / "step-00000100" / "notes").write_bytes(b"not of the manifest")
    names = [file.name for file in read_run(run)]
    expected = set(contents(run)) - {"checkpoints/.tmp-step-00000300-x/model-00000.bin"}
    assert set(names) == expected - {"checkpoints/step-00000100/notes"}
    assert [name.rpartition("/")[2] for name in names[-2:]] == ["manifest.json"] * 2


def test_key_stands_for_names_and_contents(tmp_path: Path) -> None:
    """The key of a push stands for the contents of the run, whatever the order of its files."""
    run = make_run(tmp_path / "demo")
    before = key_of(read_run(run))
    assert key_of(list(reversed(read_run(run)))) == before
    (run / "run.yaml").write_text("other: 1\n")
    assert key_of(read_run(run)) != before


def damage(run: Path) -> None:
    """Overwrite a file of the checkpoint with other bytes of the same number."""
    (run / "checkpoints" / "step-00000100" / "model-00000.bin").write_bytes(os.urandom(100_000))


def unfinish(run: Path) -> None:
    """Leave the part of a file that a `fetch` has not ended."""
    (run / "metrics.jsonl.partial-0123456789ab").write_bytes(b"")


def link(run: Path) -> None:
    """Put a link to a file into the run."""
    (run / "elsewhere").symlink_to("/etc/passwd")


def link_folder(run: Path) -> None:
    """Replace a folder of the run by a link to it."""
    (run / "tensorboard").rename(run.with_name("elsewhere"))
    (run / "tensorboard").symlink_to(run.with_name("elsewhere"))


def add_bytes(run: Path) -> None:
    """Put a file into the run whose name is not UTF-8."""
    (run / os.fsdecode(b"bytes-\xff")).touch()


def make_pipe(run: Path) -> None:
    """Put a pipe into the run. A program that opens it to read would wait for ever."""
    os.mkfifo(run / "pipe")  # a program that opens it to read waits for a writer


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (damage, "model-00000.bin does not have the sha256 of manifest.json"),
        (unfinish, "a fetch into it has not ended"),
        (link, "elsewhere is a link"),
        (link_folder, "tensorboard is a link"),
        (make_pipe, "pipe is no plain file"),
        (add_bytes, r"the name of bytes-\\udcff is no text in UTF-8"),
        (
            lambda run: (run / "run.yaml").unlink(),
            "it has no run.yaml.* Name a folder that `./disttrain fetch`",
        ),
    ],
)
def test_folder_that_is_not_whole_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    """`push` refuses a folder that is damaged, unfinished, or holds anything but plain files."""
    run = make_run(tmp_path / "demo")
    spoil(run)
    with pytest.raises(ValueError, match=reason):
        read_run(run)


def test_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it has no checkpoint"):
        read_run(make_run(tmp_path / "demo", steps=()))
    with pytest.raises(ValueError, match="there is no such folder"):
        read_run(tmp_path / "nowhere")


def test_name_is_free_or_an_unfinished_push_of_the_same() -> None:
    """`push` refuses a name that a run on the volume has, or that another unfinished push is about
    to take. An unfinished push of the same run is continued.
    """
    free = {"exists": False, "unfinished": {}, "free_bytes": 1000}
    assert refusal(free, "demo", ".push-a-demo", 1000) == ""
    assert refusal({**free, "unfinished": {".push-a-demo": 1}}, "demo", ".push-a-demo", 9) == ""
    other = refusal({**free, "unfinished": {".push-b-demo": 1}}, "demo", ".push-a-demo", 9)
    assert "./disttrain runs delete .push-b-demo" in other
    assert "the volume has a run of this name" in refusal({**free, "exists": True}, "demo", "x", 9)


def test_run_that_has_no_room_is_refused_before_a_byte() -> None:
    """`push` refuses to begin if the volume has too little room; what has arrived before is not
    counted again. A file system that does not tell its room is no reason to refuse.
    """
    seen: dict[str, Any] = {"exists": False, "unfinished": {".push-a-demo": 300}, "free_bytes": 700}
    assert refusal(seen, "demo", ".push-a-demo", 1000) == ""
    said = refusal(seen, "demo", ".push-a-demo", 1200)
    assert said.startswith("the volume has 700 bytes free, and the run needs 900 more")
    assert refusal({**seen, "free_bytes": None}, "demo", ".push-a-demo", 10**18) == ""


def test_checkpoint_that_is_added_is_another_push(tmp_path: Path) -> None:
    """A run with one more checkpoint is another push, with a key of its own."""
    run = make_run(tmp_path / "demo")
    before = key_of(read_run(run))
    add_checkpoint(run, 200)
    assert key_of(read_run(run)) != before


@pytest.mark.parametrize("name", ["/", "my run", "x" * 64, "-x"])
def test_name_that_no_run_can_have_is_refused(name: str) -> None:
    """A name that no run can have is refused, and the message names `--run`, by which another one
    is given.
    """
    with pytest.raises(ValueError, match=r"^FOLDER: its name .* Give one by --run$"):
        name_of_run(Path("/tmp") / name, "")
    assert name_of_run(Path("/tmp") / name, "fine") == "fine"
    if name != "/":
        with pytest.raises(ValueError, match=r"^--run .* Give one by --run$"):
            name_of_run(Path("/tmp/fine"), name)


def test_push_that_came_too_late_names_what_it_left() -> None:
    """A push whose name was taken meanwhile names what it left on the volume, and how to remove it.
    It happens when two people push a run of the same name at once.
    """

    class Late:
        api = path = container = None

        def ask(self, word: str, *_: str) -> dict[str, object]:
            free = {"exists": False, "unfinished": {}, "arriving": [], "free_bytes": None}
            return free if word == "examine" else {"ok": False}

    pod, place = cast(Any, Late()), cast(Any, SimpleNamespace(runs_path="/data/runs"))
    with pytest.raises(ValueError, match=r"runs delete \.push-[0-9a-f]{12}-demo$"):
        push(pod, place, "demo", Path("demo"), [])


def test_push_that_fails_names_what_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A push that fails, because the volume is full for example, names what it left there, and how
    to remove it.
    """

    def fail(*_: object, **__: object) -> None:
        raise TaskError("the pod cannot write x: no space left")

    monkeypatch.setattr(command, "send", fail)
    free = {"exists": False, "unfinished": {}, "arriving": [], "free_bytes": None}
    pod = cast(Any, SimpleNamespace(api=None, path="", container="", ask=lambda *_: free))
    place = cast(Any, SimpleNamespace(runs_path="/data/runs"))
    with pytest.raises(TaskError, match=r"^the pod .* no space left\. .* delete \.push-\w+-demo$"):
        push(pod, place, "demo", Path("demo"), [LocalFile("run.yaml", 1, "0" * 64)])


def test_only_what_has_begun_to_arrive_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`push` asks how much of a file has arrived only for files that are there in whole or in part.
    A new file needs one command and not two.
    """
    new = dict[str, bool]()

    def note(file: Any, *_: object, is_new: bool) -> None:
        new[Path(file.target).name] = is_new

    monkeypatch.setattr(command, "send", note)
    arriving = ["there", "checkpoints/step-00000100/half.partial-0123456789ab"]
    seen = {"exists": False, "unfinished": {}, "arriving": arriving, "free_bytes": None, "ok": True}
    pod = cast(Any, SimpleNamespace(api=None, path="", container="", ask=lambda *_: seen))
    place = cast(Any, SimpleNamespace(runs_path="/data/runs"))
    names = ["there", "checkpoints/step-00000100/half", "new"]
    push(pod, place, "demo", Path("demo"), [LocalFile(name, 1, "0" * 64) for name in names])
    assert new == {"there": False, "half": False, "new": True}

"""`fetch` brings a consistent copy of a run that goes on, or is deleted, while it is fetched."""

import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.fetch import pod_program
from cli.fetch.wanted import NoRunError, parse_contents
from infra.kube.errors import TaskError
from tests.cli.fetch.local_pod import LocalPod, add_checkpoint, contents, fetch, make_run


def test_growing_files_are_cut_at_whole_lines_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` brings only whole lines of the metrics and whole records of TensorBoard's file,
    although both grow meanwhile.
    """
    run = make_run(tmp_path / "demo")
    metrics, events = run / "metrics.jsonl", run / "tensorboard" / "events.out.tfevents.1"
    whole = contents(run)
    with metrics.open("a") as lines, events.open("ab") as records:
        lines.write('{"step": 1')
        records.write((500).to_bytes(8, "little") + b"crc.half a record")

    def grow(words: list[str]) -> None:
        if words[0] == "send":
            with metrics.open("a") as file:
                file.write("00}\n")

    fetch(monkeypatch, LocalPod(before=grow), run, tmp_path / "here")
    assert contents(tmp_path / "here") == whole


def test_long_line_without_an_end_is_left_out(tmp_path: Path) -> None:
    """A last line without an end is left out, however long it is."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"{}\n" + b"x" * (3 * pod_program.BLOCK_BYTES))
    assert pod_program.whole_bytes(path) == 3
    path.write_bytes(b"x" * 10)
    assert pod_program.whole_bytes(path) == 0


def test_checkpoint_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that cannot be read is reported by its name, and the other ones can still be
    fetched. On NFS a failed read names no file.
    """
    directory = tmp_path / "step-00000007"
    directory.mkdir()

    def fail(*_: object, **__: object) -> str:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "read_text", fail)
    found = pod_program.checkpoint(directory)
    assert found["problem"] == "step-00000007 cannot be read: Stale file handle"


@pytest.mark.parametrize("what", ["run", "checkpoint"])
def test_many_small_files_are_no_silence(
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """While the pod reads many files, none of which takes long, it gives signs of life: a reader
    takes a connection that is silent for a minute for dead, and each further try would be as long.
    """
    seconds, count = [0.0], 40

    class Slow:
        """A sha256 that takes 4 s for each block."""

        def update(self, block: bytes) -> None:
            seconds[0] += 4 * bool(block)

        def hexdigest(self) -> str:
            return "0"

    monkeypatch.setattr(pod_program, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    monkeypatch.setattr(pod_program, "hashlib", SimpleNamespace(sha256=Slow))
    monkeypatch.setattr(pod_program, "_life", pod_program.Life())
    names = [*pod_program.NEEDED, *(f"rank-{number}.bin" for number in range(count))]
    for name in names:
        (tmp_path / name).write_text("x")
    entries = {name: {"bytes": 1, "sha256": "0"} for name in names}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": entries}))
    if what == "run":
        assert len(pod_program.files(tmp_path)) > count
    else:
        assert pod_program.problem(tmp_path, read=True) == ""
    assert len(capsys.readouterr().err) >= 4 * count // 10


def test_metrics_written_anew_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` reads the metrics again if they are written anew meanwhile, and says so. A run that
    resumes drops the records after its checkpoint, and so its file is another one.
    """
    run = make_run(tmp_path / "demo")
    said: list[str] = []

    def rewrite(words: list[str]) -> None:
        if words[0] == "send" and len(metrics.read_text()) > 100:
            metrics.with_name("new").write_text(json.dumps({"step": 1}) + "\n")
            metrics.with_name("new").replace(metrics)

    metrics = run / "metrics.jsonl"
    fetch(monkeypatch, LocalPod(before=rewrite), run, tmp_path / "here", say=said.append)
    assert contents(tmp_path / "here") == contents(run)
    assert any("is read again" in line or "written anew" in line for line in said)


def prune(run: Path, step: int) -> None:
    """Remove a checkpoint as the trainer does, if it is there."""
    directory = run / "checkpoints" / f"step-{step:08d}"
    if directory.exists():
        shutil.rmtree(directory.rename(directory.with_name(".tmp-old")))


@pytest.mark.parametrize("cut_first", [False, True])
def test_pruned_checkpoint_gives_way_to_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_first: bool
) -> None:
    """If the trainer removes the checkpoint that is being fetched, `fetch` brings the newest one,
    and says so. No part of the removed checkpoint stays here.
    """
    run = make_run(tmp_path / "demo")
    said: list[str] = []

    def go_on(words: list[str]) -> None:
        sends = [each for each in pod.commands if each[0] == "send"]
        if words[0] == "send" and len(sends) == (2 if cut_first else 1):
            add_checkpoint(run, 200)
            prune(run, 100)

    pod = LocalPod([30_000] if cut_first else [], before=go_on)
    brought = fetch(monkeypatch, pod, run, tmp_path / "here", say=said.append)
    assert brought.checkpoint
    assert brought.checkpoint.step == 200
    assert contents(tmp_path / "here") == contents(run)
    assert any("was removed from the volume while it was read" in line for line in said)
    assert not (tmp_path / "here/checkpoints/step-00000100").exists()


def test_step_that_was_pruned_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a chosen step is removed while it is fetched, `fetch` refuses it and takes no other step
    in its place.
    """
    run = make_run(tmp_path / "demo")

    def go_on(words: list[str]) -> None:
        if words[0] == "send":
            prune(run, 100)

    with pytest.raises(ValueError, match="step 100 cannot be fetched"):
        fetch(monkeypatch, LocalPod(before=go_on), run, tmp_path / "here", "100")


def test_run_that_prunes_faster_than_it_comes_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` gives up if each checkpoint is removed before it has arrived, and names the setting
    that keeps more of them.
    """
    run = make_run(tmp_path / "demo")
    steps = iter(range(100, 10_000, 100))

    def go_on(words: list[str]) -> None:
        if words[0] == "send":
            step = next(steps)
            prune(run, step)
            add_checkpoint(run, step + 100)

    with pytest.raises(TaskError, match=r"Raise run\.checkpoint\.keep_last"):
        fetch(monkeypatch, LocalPod(before=go_on), run, tmp_path / "here")


@pytest.mark.parametrize("moment", ["steps", "files"])
def test_run_deleted_while_it_is_looked_at_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A run that is deleted while the pod looks at it counts as a run that is not there, and the
    other runs are named.
    """
    run = make_run(tmp_path / "demo")
    make_run(tmp_path / "other")
    found = getattr(pod_program, moment)

    def delete_first(path: Path, *others: object) -> object:
        shutil.rmtree(run, ignore_errors=True)
        return found(path, *others)

    monkeypatch.setattr(pod_program, moment, delete_first)
    assert pod_program.contents(run) == {"found": False, "runs": ["other"]}


def test_name_of_another_run_does_not_steer_the_terminal() -> None:
    """Control characters in the name of a run are printed as escapes."""
    answer = {"found": False, "runs": ["gone\x1b[2J", "other"]}
    with pytest.raises(NoRunError, match=r"The runs there: gone\\x1b\[2J, other$"):
        parse_contents(answer, "demo")


def test_file_whose_name_is_no_text_is_named(tmp_path: Path) -> None:
    """A run with a file whose name is not UTF-8 is refused with that name. A user's program may
    have made such a file, and no request to the API server can hold its name.
    """
    run = make_run(tmp_path / "demo")
    (run / os.fsdecode(b"bytes-\xff")).touch()
    with pytest.raises(ValueError, match=r"bytes-\\udcff' of run 'demo' .* UTF-8.*Rename it"):
        parse_contents(pod_program.contents(run), "demo")

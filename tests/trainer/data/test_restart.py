"""A preparation that was killed goes on where it was, with the same result as one that nobody has
disturbed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.trainer.lab import CHECKOUT
from tests.trainer.process_tree import processes_below
from trainer.config import RunConfig
from trainer.data import batches, stream
from trainer.data.prepare import prepare
from trainer.launch.exit_codes import FatalError, RetryableError

BATCH_BYTES = 2**14
LIMIT_SECONDS = 120.0


def config(root: Path, source: Path, **dataset: Any) -> RunConfig:
    """Return a run with this file as data set."""
    values = {"name": "d", "file": str(source), **dataset}
    return RunConfig.from_mapping({"data_root": str(root), "dataset": values})


def content(run: RunConfig) -> dict[str, bytes]:
    """Return the files of the data set by name."""
    return {path.name: path.read_bytes() for path in run.dataset_dir.iterdir()}


def write_lines(path: Path, count: int) -> Path:
    """Write `count` documents as lines of JSON."""
    lines = (json.dumps({"text": f"line {n} é " + "ab " * (n % 40)}) for n in range(count))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make several batches out of little data, each of which is stored before the next."""
    monkeypatch.setattr(batches, "BATCH_BYTES", BATCH_BYTES)
    monkeypatch.setattr(stream, "COMMIT_SECONDS", 0.0)


DURABLE = ("fsync", "replace", "rename", "truncate")


def prepare_in_a_fork(run: RunConfig, killed_at: int) -> bool:
    """Prepare in a process that is killed before its `killed_at`th durable step.

    Returns whether it came to the end.
    """
    pid = os.fork()
    if pid == 0:
        steps = 0

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def step(*arguments: Any, **options: Any) -> Any:
                nonlocal steps
                steps += 1
                if steps == killed_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return step

        try:
            for name in DURABLE:
                setattr(os, name, counted(getattr(os, name)))
            prepare(run, workers=1)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("kind", ["jsonl", "text"])
def test_a_kill_at_any_step_changes_nothing(tmp_path: Path, kind: str) -> None:
    """A preparation that is killed at any of its durable steps ends with the same data set at the
    next start.
    """
    source = tmp_path / f"source.{kind}"
    if kind == "text":
        source.write_text("".join(f"line {n} é {'ab ' * (n % 30)}\n" for n in range(500)))
    else:
        write_lines(source, 400)
    assert steps_of_which_each_may_be_the_last(tmp_path, source) > 25  # batches and the end


def test_kills_do_not_change_a_divided_document(tmp_path: Path) -> None:
    """A data set of one document, which is divided in the middle, is the same after a kill at any
    step.
    """
    source = tmp_path / "source.jsonl"
    source.write_text(json.dumps({"text": "one é document " * 3000}))
    assert steps_of_which_each_may_be_the_last(tmp_path, source) > 20
    made = config(tmp_path / "undisturbed", source).dataset_dir
    assert all((made / f"{split}.bin").stat().st_size > 1000 for split in ("train", "val"))


def steps_of_which_each_may_be_the_last(tmp_path: Path, source: Path) -> int:
    """Kill a preparation at each of its durable steps, assert that the next start gives the same
    data set, and return the number of steps.
    """
    undisturbed = config(tmp_path / "undisturbed", source)
    prepare(undisturbed)
    killed_at, finished = 0, False
    while not finished:
        killed_at += 1
        run = config(tmp_path / f"killed-{killed_at}", source)
        finished = prepare_in_a_fork(run, killed_at)
        prepare(run)
        assert content(run) == content(undisturbed), f"killed at step {killed_at}"
        assert [path.name for path in run.dataset_dir.parent.iterdir()] == ["d"]
    return killed_at


@pytest.mark.parametrize("first", [b"", b'{"text": "of a batch"}\n'])
def test_a_file_that_is_empty_or_ends_with_a_batch_is_counted(tmp_path: Path, first: bytes) -> None:
    """A start that goes on after a file that is empty, or ends exactly with a batch, goes on in the
    right file at the right place.
    """
    source = tmp_path / "source"
    source.mkdir()
    (source / "1.jsonl").write_bytes(first.rjust(BATCH_BYTES) if first else b"")
    write_lines(source / "2.jsonl", 400)
    assert steps_of_which_each_may_be_the_last(tmp_path, source) > 15


def test_kills_one_after_the_other_end_all_the_same(tmp_path: Path) -> None:
    """A preparation comes to its end although each start is killed at its 15th step, because each
    start gets some batches further.
    """
    source = write_lines(tmp_path / "source.jsonl", 1500)
    undisturbed, run = config(tmp_path / "undisturbed", source), config(tmp_path / "killed", source)
    prepare(undisturbed)
    kills = 0
    while not prepare_in_a_fork(run, 15):
        kills += 1
        assert kills < 100, "no start gets further than the one before"
    assert kills >= 5
    assert content(run) == content(undisturbed)


# With a third argument it stops after its second batch, so that it is killed on its way for sure.
PROGRAM = """
import signal, sys
from pathlib import Path
from trainer.config import RunConfig
from trainer.data import batches, stream
from trainer.data.prepare import prepare
batches.BATCH_BYTES, stream.COMMIT_SECONDS = 2**14, 0.0
append, batches_done = stream.TokenStream.append, []
def append_and_stop(*arguments, **options):
    append(*arguments, **options)
    batches_done.append(True)
    if len(sys.argv) > 3 and len(batches_done) == 2:
        signal.pause()
stream.TokenStream.append = append_and_stop
values = {"name": "d", "file": sys.argv[2]}
prepare(RunConfig.from_mapping({"data_root": sys.argv[1], "dataset": values}), workers=2)
"""


def start(run: RunConfig, *stops: str) -> subprocess.Popen[bytes]:
    """Start a preparation with two workers; with an argument more it stops after its second
    batch.
    """
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, run.data_root, str(run.dataset.file), *stops],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
    )


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT_SECONDS:g} s for: {what}"
        time.sleep(0.01)


def test_workers_give_the_same_and_end_with_their_parent(tmp_path: Path) -> None:
    """Two workers give the same data set as one. They end when the first process is killed by kill
    -9, and the next start completes the data set.
    """
    source = write_lines(tmp_path / "source.jsonl", 8_000)
    undisturbed, run = config(tmp_path / "undisturbed", source), config(tmp_path / "killed", source)
    prepare(undisturbed, workers=1)
    folder = run.dataset_dir.with_name(".d.partial")
    first = start(run, "stops")
    try:
        wait_until(lambda: stream.read_progress(folder).tokens > 0, "the first batches")
        family = processes_below(first.pid)
        assert len(family) >= 3
    finally:
        first.kill()
        first.wait()
    kept = stream.read_progress(folder)
    assert not kept.is_complete
    wait_until(lambda: not any(is_alive(pid) for pid in family), "the end of the workers")
    second = start(run)
    assert second.wait(LIMIT_SECONDS) == 0
    assert content(run) == content(undisturbed)


def is_alive(pid: int) -> bool:
    """Return whether the process runs, which a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_worker_that_is_killed_is_a_retryable_failure(tmp_path: Path) -> None:
    """A worker that is killed, as by the kernel for lack of memory, is a failure that may be tried
    again, and the next start goes on.
    """
    source = write_lines(tmp_path / "source.jsonl", 8_000)
    run = config(tmp_path, source)
    folder = run.dataset_dir.with_name(".d.partial")
    real = stream.TokenStream.append
    victims: list[int] = []

    def kill_a_worker(self: Any, *arguments: Any, **options: Any) -> None:
        if not victims:
            victims.extend(pid for pid in processes_below(os.getpid())[1:] if is_worker(pid))
            os.kill(victims[0], signal.SIGKILL)
        real(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream.TokenStream, "append", kill_a_worker)
        with pytest.raises(RetryableError, match=r"a worker process .* ended unexpectedly"):
            prepare(run, workers=2)
    assert stream.read_progress(folder).tokens > 0
    prepare(run, workers=1)
    assert run.dataset_dir.exists()


def is_worker(pid: int) -> bool:
    """Return whether the process is a worker of the preparation."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def test_a_source_that_changes_in_between_begins_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A preparation whose source has changed since it was killed begins again and prints the
    reason.
    """
    source = write_lines(tmp_path / "source.jsonl", 1200)
    run = config(tmp_path, source)
    assert not prepare_in_a_fork(run, 20)
    write_lines(source, 800)
    prepare(run)
    said = capsys.readouterr().out
    assert "source.jsonl has changed since then" in said
    assert "starting again" in said
    fresh = config(tmp_path / "fresh", source)
    prepare(fresh)
    assert content(run) == content(fresh)


def stale(*values: object, **more: object) -> NoReturn:
    """Stand in for a call that fails as on a client of NFS whose server has come back."""
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


@pytest.mark.parametrize("act", ["cannot be read", "cannot write"])
def test_storage_that_fails_for_a_while_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """A read or write that fails by the storage is a failure that may be tried again, and what was
    done before is kept.
    """
    source = write_lines(tmp_path / "source.jsonl", 1200)
    undisturbed, run = config(tmp_path / "undisturbed", source), config(tmp_path / "second", source)
    prepare(undisturbed)
    real = stream.TokenStream.append

    with monkeypatch.context() as away:

        def append_and_lose_the_server(self: Any, *values: Any, **more: Any) -> None:
            real(self, *values, **more)
            if act == "cannot write":
                away.setattr(os, "fsync", stale)
            else:
                away.setattr(batches, "skip_bytes", stale)
                raise RetryableError("as if it were killed")

        away.setattr(stream.TokenStream, "append", append_and_lose_the_server)
        if act == "cannot be read":
            with pytest.raises(RetryableError, match="as if it were killed"):
                prepare(run, workers=1)
        with pytest.raises(RetryableError, match=f"{act}.*Stale file handle"):
            prepare(run, workers=1)
    assert stream.read_progress(run.dataset_dir.with_name(".d.partial")).tokens > 0
    prepare(run)
    assert content(run) == content(undisturbed)


@pytest.mark.parametrize("number", ["EIO", "ETIMEDOUT", "ENOTCONN", "ESHUTDOWN", "EHOSTDOWN"])
def test_file_server_that_is_lost_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    """What a client returns when its server is lost is a failure that may be tried again: a dead
    client of FUSE, one that Ceph or Lustre has shut out, one of SMB. The next pod mounts anew.
    """
    run = config(tmp_path, write_lines(tmp_path / "source.jsonl", 20))

    def lose(path: Path) -> NoReturn:
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)), str(path))

    monkeypatch.setattr(batches, "open_text", lose)
    with pytest.raises(RetryableError, match=r"source\.jsonl: cannot be read"):
        prepare(run, workers=1)


def test_storage_without_locks_allows_a_preparation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a file system without locks the data set is made all the same, with one warning. A second
    call finds it there.
    """

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    run = config(tmp_path, write_lines(tmp_path / "source.jsonl", 20))
    prepare(run)
    assert capsys.readouterr().out.count("has no locks") == 1
    assert sorted(content(run)) == ["meta.json", "train.bin", "val.bin"]
    work = run.dataset_dir.with_name(".d.partial")
    work.mkdir()  # as if a start had been killed after it had put the data set in place
    (work / "lock").touch()
    prepare(run)
    assert "is already in" in capsys.readouterr().out


def test_a_full_disk_keeps_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk ends the preparation with the system's own words, and the next start goes on."""
    source = write_lines(tmp_path / "source.jsonl", 1200)
    run = config(tmp_path, source)
    real, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FatalError, match=r"cannot write .*No space left on device"):
        prepare(run, workers=1)
    folder = run.dataset_dir.with_name(".d.partial")
    assert stream.read_progress(folder).tokens > 0
    prepare(run)
    fresh = config(tmp_path / "fresh", source)
    prepare(fresh)
    assert content(run) == content(fresh)


MEASURED = """
import resource, sys
from trainer.config import RunConfig
from trainer.data.prepare import prepare
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
values = {"name": "d", "file": sys.argv[2]}
prepare(RunConfig.from_mapping({"data_root": sys.argv[1], "dataset": values}), workers=1)
print("grown by", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    """Preparing 48 MB of text takes less than 48 MB of memory. The text has an emoji, for which
    Python would store each character of the whole text in four bytes.
    """
    block = ("to be or not to be, that is the question 😀\n" * 25_000).encode()
    source = tmp_path / "text.txt"
    with source.open("wb") as file:
        for _ in range(-(-48_000_000 // len(block))):
            file.write(block)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path), str(source)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout.split()[-1]) < 48_000_000

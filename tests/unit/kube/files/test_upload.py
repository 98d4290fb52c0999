"""A file comes whole over connections that are cut, with few commands in the pod.

The pod is a stand-in: it runs the same program on this machine, and loses answers when it is told.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest

from infra.kube.errors import TaskError, UnreachableError
from infra.kube.files import receiver, upload
from infra.kube.files.upload import SentFile, send

CUT, LOST = "a cut after the first block", "the answer is lost"


class LocalPod:
    """Runs the pod's program here. `faults`: of the next commands, one after the other."""

    def __init__(self, *faults: str) -> None:
        self.faults, self.commands = list(faults), list[str]()

    def call(self, *words: str, blocks: Iterator[bytes] | None = None) -> dict[str, Any]:
        self.commands.append(words[0])
        fault = self.faults.pop(0) if self.faults else ""
        sent = blocks or iter(())
        done = subprocess.run(
            [sys.executable, "-c", Path(receiver.__file__).read_text(), *words],
            input=b"".join(islice(sent, 1) if fault == CUT else sent),
            capture_output=True,
            check=True,
        )
        if fault:
            raise UnreachableError(fault)
        return cast(dict[str, Any], json.loads(done.stdout))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a large file; a pause after a cut would only take time."""
    monkeypatch.setattr(upload, "PART_BYTES", 400)
    monkeypatch.setattr(upload, "BLOCK_BYTES", 100)
    monkeypatch.setattr(upload.time, "sleep", lambda _: None)


def file_of(folder: Path, size: int) -> SentFile:
    content = bytes(number % 251 for number in range(size))
    (folder / "source").write_bytes(content)
    target = folder / "there" / "file"
    sha256 = hashlib.sha256(content).hexdigest()
    return SentFile(folder / "source", str(target), size, sha256)


def sent(file: SentFile, *faults: str, is_new: bool = False) -> list[str]:
    """The commands that it took."""
    pod = LocalPod(*faults)
    send(file, cast(Any, pod), is_new=is_new)
    target = Path(file.target)
    assert target.read_bytes() == file.source.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    return pod.commands


@pytest.mark.parametrize("size", [0, 1, 400])
def test_new_small_file_takes_one_command(tmp_path: Path, size: int) -> None:
    """Each takes most of a second on a busy machine."""
    assert sent(file_of(tmp_path, size), is_new=True) == ["receive"]


def test_file_that_is_there_is_not_sent_again(tmp_path: Path) -> None:
    file = file_of(tmp_path, 1000)
    assert sent(file) == ["look", *["receive"] * 3]
    assert sent(file) == ["look"]
    assert sent(file, is_new=True) == ["receive"] * 3  # another push has brought it meanwhile


@pytest.mark.parametrize(
    ("faults", "commands"),
    [
        ([CUT], ["receive", "look", *["receive"] * 3]),
        (["", CUT], [*["receive"] * 2, "look", *["receive"] * 2]),
        (["", "", CUT], [*["receive"] * 3, "look", "receive"]),
        (["", "", LOST], [*["receive"] * 3, "look"]),
        (
            [CUT, LOST, "", "", CUT],
            ["receive", *["look"] * 2, *["receive"] * 2, "look", "receive"],
        ),
    ],
)
def test_cut_file_goes_on_with_what_has_arrived(
    tmp_path: Path, faults: list[str], commands: list[str]
) -> None:
    assert sent(file_of(tmp_path, 1000), *faults, is_new=True) == commands


def test_receiver_that_is_overtaken_does_no_harm(tmp_path: Path) -> None:
    """One of a connection that was cut goes on, and has given the file its name meanwhile."""
    file = file_of(tmp_path, 1000)
    sent(file)
    pod = LocalPod()
    end = iter([file.source.read_bytes()[900:]])
    answer = pod.call("receive", file.target, "1000", file.sha256, "900", "100", blocks=end)
    assert answer == {"got": 100, "ok": True}
    assert [path.name for path in Path(file.target).parent.iterdir()] == ["file"]


def test_file_that_changed_while_it_was_sent_gets_no_name(tmp_path: Path) -> None:
    file = file_of(tmp_path, 1000)
    file.source.write_bytes(b"x" * 1000)
    with pytest.raises(TaskError, match=r"what arrived has sha256 .* and was removed; run"):
        send(file, cast(Any, LocalPod()), is_new=True)
    assert list(Path(file.target).parent.iterdir()) == []


def test_file_that_became_shorter_is_given_up(tmp_path: Path) -> None:
    file = file_of(tmp_path, 1000)
    file.source.write_bytes(b"x" * 300)
    with pytest.raises(TaskError, match="source became shorter while it was sent; run the same"):
        send(file, cast(Any, LocalPod()))

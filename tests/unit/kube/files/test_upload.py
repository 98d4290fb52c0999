"""A file arrives complete over connections that are cut, with few commands in the pod.

The pod is a stand-in: it runs the same program on this machine, and loses answers if it is told to.
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
    """Stands in for a pod, and runs the program of the pod on this machine.

    Args:
        faults: what happens to each of the next commands: `CUT`, `LOST`, or empty for nothing.
    """

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
    """Send small files in several parts, as large ones are sent, and do not wait after a cut."""
    monkeypatch.setattr(upload, "PART_BYTES", 400)
    monkeypatch.setattr(upload, "BLOCK_BYTES", 100)
    monkeypatch.setattr(upload.time, "sleep", lambda _: None)


def file_of(folder: Path, size: int) -> SentFile:
    """Return a file of this size in bytes, which is to be sent into the folder `there`."""
    content = bytes(number % 251 for number in range(size))
    (folder / "source").write_bytes(content)
    target = folder / "there" / "file"
    sha256 = hashlib.sha256(content).hexdigest()
    return SentFile(folder / "source", str(target), size, sha256)


def sent(file: SentFile, *faults: str, is_new: bool = False) -> list[str]:
    """Send a file, check that it has arrived, and return the commands that were run in the pod."""
    pod = LocalPod(*faults)
    send(file, cast(Any, pod), is_new=is_new)
    target = Path(file.target)
    assert target.read_bytes() == file.source.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    return pod.commands


@pytest.mark.parametrize("size", [0, 1, 400])
def test_new_small_file_takes_one_command(tmp_path: Path, size: int) -> None:
    """A new file of one part is sent with one command, because each command takes most of a second
    on a busy machine.
    """
    assert sent(file_of(tmp_path, size), is_new=True) == ["receive"]


def test_file_that_is_there_is_not_sent_again(tmp_path: Path) -> None:
    """A file that is there is not sent again, unless the caller says that it is new. Then it is
    sent and nothing breaks, for example if another push has sent it meanwhile.
    """
    file = file_of(tmp_path, 1000)
    assert sent(file) == ["look", *["receive"] * 3]
    assert sent(file) == ["look"]
    assert sent(file, is_new=True) == ["receive"] * 3  # as if another push had sent it


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
    """After a cut or a lost answer, only the parts that have not arrived are sent."""
    assert sent(file_of(tmp_path, 1000), *faults, is_new=True) == commands


def test_receiver_that_is_overtaken_does_no_harm(tmp_path: Path) -> None:
    """A receiver that goes on after its connection was cut, while another one has completed the
    file, does not damage the file.
    """
    file = file_of(tmp_path, 1000)
    sent(file)
    pod = LocalPod()
    end = iter([file.source.read_bytes()[900:]])
    answer = pod.call("receive", file.target, "1000", file.sha256, "900", "100", blocks=end)
    assert answer == {"got": 100, "ok": True}
    assert [path.name for path in Path(file.target).parent.iterdir()] == ["file"]


def test_file_that_changed_while_it_was_sent_gets_no_name(tmp_path: Path) -> None:
    """A file that changes while it is sent is refused and removed from the volume."""
    file = file_of(tmp_path, 1000)
    file.source.write_bytes(b"x" * 1000)
    with pytest.raises(TaskError, match=r"what arrived has sha256 .* and was removed; run"):
        send(file, cast(Any, LocalPod()), is_new=True)
    assert list(Path(file.target).parent.iterdir()) == []


def test_file_that_became_shorter_is_given_up(tmp_path: Path) -> None:
    """A file that becomes shorter while it is sent ends with an error that says so."""
    file = file_of(tmp_path, 1000)
    file.source.write_bytes(b"x" * 300)
    with pytest.raises(TaskError, match="source became shorter while it was sent; run the same"):
        send(file, cast(Any, LocalPod()))

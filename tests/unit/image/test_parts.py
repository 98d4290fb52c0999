"""The folder on the node into which an image is sent in parts, and the memory that the parts take
here.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from infra.image import parts
from infra.image.node import Node, NodeError
from infra.image.parts import MOST_AT_ONCE, joined, open_transfer, send_parts

NODE = Node(["sh", "-c"], remote=True)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for all transfers of this user."""
    monkeypatch.setattr(parts, "BASE", str(tmp_path / "import"))
    return tmp_path / f"import-{os.geteuid()}"


def write(stream: IO[bytes]) -> None:
    """Write the content that is sent."""
    stream.write(b"content")


def send() -> str:
    """Send the content to the node; return the folder with the parts."""
    transfer = open_transfer(NODE, "transfer")
    send_parts(NODE, transfer, write, print)
    return transfer.folder


def test_parts_lie_in_a_folder_of_ones_own(base: Path) -> None:
    """The parts are in a folder that only their user can enter, and joined they are what was
    sent.
    """
    folder = send()
    assert folder == str(base / "transfer")
    assert base.stat().st_mode & 0o777 == 0o700
    done = subprocess.run(["sh", "-c", joined(folder)], capture_output=True, check=True)
    assert done.stdout == b"content"


def test_greeting_of_a_shell_is_no_folder(base: Path) -> None:
    """Lines that the node's shell prints, such as the greeting of a `.bashrc`, are not taken for
    the name of the folder.
    """
    greets = Node(["sh", "-c", 'echo Welcome; echo to gpu1; exec sh -c "$0"'], remote=True)
    assert open_transfer(greets, "transfer", "note") == open_transfer(NODE, "transfer")


def test_a_link_in_the_place_of_the_folder_is_refused(base: Path, tmp_path: Path) -> None:
    """A link in the place of the user's folder is refused. Otherwise whoever makes the predictable
    folder first could replace the parts.
    """
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    base.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NodeError, match=r"is not a folder that only .* can use"):
        send()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_others_may_write_to_is_refused(base: Path) -> None:
    """A folder in which others may write is refused, and the error says what to do."""
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(NodeError, match=r"drwxrwxrwx.*then remove it"):
        send()
    assert list(base.iterdir()) == []


def test_a_folder_of_another_user_is_refused(base: Path) -> None:
    """A folder that belongs to another user is refused. The test needs root, because only root can
    give a folder to another user.
    """
    if os.geteuid() != 0:
        pytest.fail("this test needs root, as the suite does")
    base.mkdir(mode=0o700)
    os.chown(base, 12345, 12345)
    with pytest.raises(NodeError, match="12345"):
        send()
    assert list(base.iterdir()) == []


@pytest.mark.usefixtures("base")
def test_few_parts_wait_in_memory_on_many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few parts wait in memory until they are sent, however many cores the machine has. With
    128 cores there would otherwise be 128 parts of 64 MiB.
    """
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    made, sent = 0, 0
    most = 0

    class CountingNode(Node):
        def run(self, text: str, content: bytes = b"") -> str:
            nonlocal sent, most
            if content:
                most = max(most, made - sent)
                sent += 1
            return super().run(text, content)

    def write_many(stream: IO[bytes]) -> None:
        nonlocal made
        for number in range(40):
            made += 1
            stream.write(number.to_bytes(1, "big") * 1000)

    shell: Sequence[str] = ["sh", "-c"]
    node = CountingNode(shell, remote=True)
    transfer = open_transfer(NODE, "many")
    send_parts(node, transfer, write_many, print, 1000)
    assert len(list(Path(transfer.folder).glob("0*"))) == 40
    assert most <= MOST_AT_ONCE + 1


def test_full_disk_of_the_parts_is_named(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk of the parts is full, the error names their folder. On hardened machines /var/tmp
    is a small disk of its own, while all other disks have room.
    """
    transfer = open_transfer(NODE, "transfer")
    (tmp_path / "cat").write_text("#!/bin/sh\necho 'cat: No space left on device' >&2; exit 1\n")
    (tmp_path / "cat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NodeError, match=rf"left on device: the disk of {base}/transfer on the"):
        send_parts(NODE, transfer, write, print)

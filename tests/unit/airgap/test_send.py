"""How files of a bundle are sent to a node. The node is this machine's own shell, which breaks off
when it is told to.
"""

import hashlib
import os
from pathlib import Path

import pytest

from infra.airgap.manifest import Entry
from infra.airgap.send import send
from infra.image.node import Node, NodeError
from tests.shell_text import READ_TEXT

PART = 1000
# A stand-in for ssh: it counts the parts that arrive, and fails at the part with the number in
# `break-at`.
SHELL = """#!/bin/sh
{read_text}
case $text in
  *.cut*)
    echo part >>{folder}/parts
    [ "$(wc -l <{folder}/parts)" != "$(cat {folder}/break-at)" ] || exit 255 ;;
esac
exec sh -c "$1"
"""


class Lab:
    """A bundle, and a node into which it is sent."""

    def __init__(self, folder: Path) -> None:
        self.bundle, self.folder = folder / "bundle", folder
        self.target = folder / "node"
        self.target.mkdir()
        shell = folder / "shell"
        shell.write_text(SHELL.format(folder=folder, read_text=READ_TEXT))
        shell.chmod(0o755)
        self.node = Node([str(shell)], remote=True)
        self.said: list[str] = []
        self.break_at(0)

    def break_at(self, part: int) -> None:
        """Let the connection break at the part with this number, and count the parts from now
        on.
        """
        (self.folder / "break-at").write_text(str(part))
        (self.folder / "parts").write_text("")

    def file(self, name: str, content: bytes) -> Entry:
        """Write a file of the bundle; return its entry."""
        path = self.bundle / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return Entry(name, "k3s", "v1", len(content), hashlib.sha256(content).hexdigest(), "")

    def send(self, *entries: Entry) -> None:
        """Send these files, in parts of `PART` bytes."""
        send(self.node, self.bundle, entries, str(self.target), self.said.append, PART)

    @property
    def parts_sent(self) -> int:
        """How many parts have arrived since `break_at`."""
        return len((self.folder / "parts").read_text().splitlines())

    @property
    def there(self) -> list[str]:
        """The paths of the files on the node."""
        files = (path for path in self.target.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.target)) for path in files)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_files_arrive_and_stay_without_being_sent_again(lab: Lab) -> None:
    """Files arrive complete, and a second time nothing is sent."""
    content = os.urandom(3 * PART)
    binary, images = lab.file("k3s/k3s", content), lab.file("images/a.tar", b"a")
    lab.send(binary, images)
    assert (lab.target / "k3s/k3s").read_bytes() == content
    assert lab.there == ["images/a.tar", "k3s/k3s"]
    assert lab.parts_sent == 4
    lab.send(binary, images)
    assert lab.parts_sent == 4
    assert lab.said[-1] == "2 files are on the node; 2 were there before"


def test_connection_that_breaks_costs_one_part(lab: Lab) -> None:
    """After a connection broke off, only the parts are sent that have not arrived yet."""
    binary = lab.file("k3s/k3s", os.urandom(5 * PART))
    lab.break_at(3)
    with pytest.raises(NodeError):
        lab.send(binary)
    assert lab.there == []
    lab.break_at(0)
    lab.send(binary)
    assert lab.parts_sent == 3
    assert lab.there == ["k3s/k3s"]


def test_files_of_an_earlier_bundle_go(lab: Lab) -> None:
    """Files of an earlier bundle that are not in this one are removed from the node."""
    lab.send(lab.file("k3s/k3s", b"old"), lab.file("images/old.tar", b"old"))
    lab.send(lab.file("k3s/k3s", b"new"))
    assert lab.there == ["k3s/k3s"]
    assert (lab.target / "k3s/k3s").read_bytes() == b"new"


def test_file_that_was_damaged_meanwhile_does_not_arrive(lab: Lab) -> None:
    """A file whose checksum is not that of the bundle's list does not arrive on the node."""
    binary = lab.file("k3s/k3s", b"binary")
    (lab.bundle / "k3s/k3s").write_bytes(b"binarz")
    with pytest.raises(NodeError, match=rf"k3s/k3s: sha256 is \w+, not {binary.sha256}"):
        lab.send(binary)
    assert lab.there == []

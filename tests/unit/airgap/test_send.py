"""Files of a bundle on their way to a node: this machine's own shell, which breaks when told to."""

import hashlib
import os
from pathlib import Path

import pytest

from infra.airgap.manifest import Entry
from infra.airgap.send import send
from infra.image.node import Node, NodeError
from tests.shell_text import READ_TEXT

PART = 1000
# Counts the parts that come; fails at the one whose number is in `break-at`.
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
        (self.folder / "break-at").write_text(str(part))
        (self.folder / "parts").write_text("")

    def file(self, name: str, content: bytes) -> Entry:
        path = self.bundle / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return Entry(name, "k3s", "v1", len(content), hashlib.sha256(content).hexdigest(), "")

    def send(self, *entries: Entry) -> None:
        send(self.node, self.bundle, entries, str(self.target), self.said.append, PART)

    @property
    def parts_sent(self) -> int:
        return len((self.folder / "parts").read_text().splitlines())

    @property
    def there(self) -> list[str]:
        files = (path for path in self.target.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.target)) for path in files)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_files_arrive_and_stay_without_being_sent_again(lab: Lab) -> None:
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
    lab.send(lab.file("k3s/k3s", b"old"), lab.file("images/old.tar", b"old"))
    lab.send(lab.file("k3s/k3s", b"new"))
    assert lab.there == ["k3s/k3s"]
    assert (lab.target / "k3s/k3s").read_bytes() == b"new"


def test_file_that_was_damaged_meanwhile_does_not_arrive(lab: Lab) -> None:
    binary = lab.file("k3s/k3s", b"binary")
    (lab.bundle / "k3s/k3s").write_bytes(b"binarz")
    with pytest.raises(NodeError, match=rf"k3s/k3s: sha256 is \w+, not {binary.sha256}"):
        lab.send(binary)
    assert lab.there == []

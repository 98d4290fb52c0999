"""An image on its way to another machine, over a line that is cut. The containerd is real.

The other machine is this one: the script `node` stands in for ssh, and can end in the middle of a
part.
"""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.image.containerd import ContainerdError
from infra.image.ensure import problems
from infra.image.node import Node
from tests.sandbox.image_lab import DEPS_BYTES, Lab
from tests.shell_text import READ_TEXT

PART_BYTES = 1_000_000

# The last argument is shell text, as with ssh. Only half of a part that is to be cut arrives.
NODE = """\
#!/bin/sh
{read_text}
case $text in
  *'cat > '*)
    echo part >> {folder}/parts
    if [ "$(wc -l < {folder}/parts)" = "$(cat {folder}/cut-part)" ]; then
      head -c 400000 | sh -c "$1"
      echo 'Connection to node closed by remote host.' >&2
      exit 255
    fi
    ;;
esac
exec sh -c "$1"
"""


Transfers = Callable[[], list[Path]]


@dataclasses.dataclass
class Line:
    """The way to the node, which counts the parts that were sent."""

    folder: Path

    def cut_part(self, number: int | None) -> None:
        """Cut the connection in the part with this number, or in none; count from 1 again."""
        (self.folder / "parts").unlink(missing_ok=True)
        (self.folder / "cut-part").write_text(f"{number}\n")

    @property
    def parts(self) -> int:
        """Return how many parts were sent since `cut_part`."""
        return len((self.folder / "parts").read_text().splitlines())


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Return a line that is not cut."""
    folder = tmp_path / "line"
    folder.mkdir()
    (folder / "node").write_text(NODE.format(folder=folder, read_text=READ_TEXT))
    (folder / "node").chmod(0o755)
    line = Line(folder)
    line.cut_part(None)
    return line


@pytest.fixture
def remote(lab: Lab, line: Line, transfers: Transfers) -> Lab:
    """Return the lab with its containerd at the other end of the line."""
    node = Node([str(line.folder / "node")], remote=True)
    containerd = dataclasses.replace(lab.containerd, node=node, part_bytes=PART_BYTES)
    return dataclasses.replace(lab, containerd=containerd)


def test_an_image_arrives_in_parts_and_leaves_none_behind(
    remote: Lab, line: Line, transfers: Transfers
) -> None:
    """A large image is sent in parts, and no part is left on the node."""
    done = remote.ensure()
    assert done.imported_bytes > DEPS_BYTES
    assert problems(remote.plan(), remote.containerd) == []
    assert line.parts == 6  # the image has a little more than 5 MB
    assert transfers() == []


def test_changed_code_goes_in_one_stream(remote: Lab, line: Line) -> None:
    """A change of the code is small and is not sent in parts."""
    remote.ensure()
    before = line.parts
    remote.change_code("print(2)\n")
    assert 0 < remote.ensure().imported_bytes < 20_000
    assert line.parts == before


def test_a_cut_connection_costs_one_part(remote: Lab, line: Line, transfers: Transfers) -> None:
    """After a cut in one part, the next attempt sends only this part and those after it."""
    line.cut_part(4)
    with pytest.raises(ContainerdError, match="closed by remote host"):
        remote.ensure()
    assert not remote.containerd.images()
    line.cut_part(None)
    remote.ensure()
    assert line.parts == 3
    assert "in 6 parts, 3 of them were there from an earlier attempt" in "\n".join(remote.said)
    assert problems(remote.plan(), remote.containerd) == []
    assert transfers() == []


def test_a_part_that_was_changed_on_the_way_is_not_imported(
    remote: Lab, line: Line, transfers: Transfers
) -> None:
    """If a part was changed on the node, the image is not imported, and the next attempt sends all
    parts again.
    """
    line.cut_part(6)
    with pytest.raises(ContainerdError):
        remote.ensure()
    (transfer,) = transfers()
    part = sorted(transfer.iterdir())[2]
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    line.cut_part(None)
    with pytest.raises(ContainerdError):
        remote.ensure()
    assert not remote.containerd.images()
    assert transfers() == []  # the next attempt starts afresh
    remote.ensure()
    assert problems(remote.plan(), remote.containerd) == []


def test_a_full_disk_at_the_node_says_so(remote: Lab, line: Line, transfers: Transfers) -> None:
    """A full disk on the node is said, and the next attempt succeeds once there is room."""
    shutil.copyfile(line.folder / "node", line.folder / "full")
    full = 'case $text in *"cat > "*) echo "cat: No space left on device" >&2; exit 1;; esac\n'
    (line.folder / "node").write_text(f'#!/bin/sh\n{READ_TEXT}{full}exec sh -c "$1"\n')
    with pytest.raises(ContainerdError, match="No space left on device"):
        remote.ensure()
    shutil.copyfile(line.folder / "full", line.folder / "node")
    remote.ensure()
    assert transfers() == []

"""Files that nothing compares later are on the disk before they get their name.

Some file systems, such as XFS, may show a new file as empty after a power loss although it was
renamed. A `sync` that fails shows here that a file does not get its name first.
"""

import hashlib
from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost, RefusedError

RECORD = "etc/rancher/disttrain"
IMAGES = "var/lib/rancher/k3s/agent/images"


def fails_for(end: str) -> str:
    """Return a `sync` that fails for files whose names end so."""
    return f"case $1 in *{end}) exit 1 ;; esac"


def test_record_reaches_the_disk_first(tmp_path: Path) -> None:
    """An empty record would count as the record of a k3s of this program, and no longer say what
    was on the machine before: the removal of k3s would delete that too.
    """
    host = K3sHost(tmp_path)
    host.has_program("sync", fails_for("/disttrain.new"))
    with pytest.raises(RefusedError, match="cannot be written: is the disk full"):
        host.run("create", "gpu2")
    assert not (host.root / RECORD).exists()
    host.has_program("sync", "exit 0")
    host.run("create", "gpu2")
    before = (host.root / RECORD).read_text()
    host.has_program("sync", fails_for("/disttrain.new"))
    with pytest.raises(RefusedError):
        host.run("create", "gpu2", REPAIR_ID="repair-2")
    assert (host.root / RECORD).read_text() == before


def test_images_reach_the_disk_first(tmp_path: Path) -> None:
    """An archive of images is compared with its checksum only before it gets its name. k3s would
    import nothing of an empty one, and a host without a network has no other source.
    """
    host = K3sHost(tmp_path)
    content = b"images"
    (tmp_path / "bundle/images.tar").write_bytes(content)
    wanted = {"K3S_IMAGES": f"{hashlib.sha256(content).hexdigest()} images.tar"}
    host.has_program("sync", fails_for("images.tar.disttrain-new"))
    with pytest.raises(RefusedError):
        host.run("create", "gpu2", **wanted)
    assert not [*(host.root / IMAGES).glob("*.tar")]
    host.has_program("sync", "exit 0")
    host.run("create", "gpu2", **wanted)
    (image,) = (host.root / IMAGES).iterdir()
    assert image.read_bytes() == content

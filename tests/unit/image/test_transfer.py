"""Which blobs a second attempt sends, after the first one was sent completely and was cut off
later.
"""

import os
import subprocess
from pathlib import Path

import pytest

from infra.image import parts
from infra.image.node import Node
from infra.image.oci import Image
from infra.image.parts import joined
from infra.image.transfer import send_archive
from tests.unit.image.layouts import tiny_image

NODE = Node(["sh", "-c"], remote=True)
NOTHING: frozenset[str] = frozenset()
PART_BYTES = 1000


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    """Return an image; the folder for transfers is one of this test."""
    monkeypatch.setattr(parts, "BASE", str(tmp_path / "import"))
    return tiny_image(os.urandom(5000))


def sent(image: Image, held: frozenset[str]) -> tuple[str, bytes]:
    """Send the image once; return the last message, and the archive that is on the node then."""
    said: list[str] = []
    folder = send_archive(NODE, {"name:tag": image}, held, said.append, PART_BYTES)
    archive = subprocess.run(["sh", "-c", joined(folder)], capture_output=True, check=True).stdout
    return said[-1], archive


def test_what_an_import_took_before_it_was_cut_changes_no_part(image: Image) -> None:
    """A second attempt sends nothing again, even if containerd has taken some blobs before the
    import was cut off.
    """
    _, first = sent(image, NOTHING)
    said, second = sent(image, frozenset({image.manifest.digest, image.config.digest}))
    count = said.partition(" parts, ")[0].rpartition(" ")[2]
    assert f"0.0 MB sent in {count} parts, {count} of them were there" in said
    assert second == first


def test_a_blob_that_was_collected_meanwhile_is_sent(image: Image) -> None:
    """A blob that containerd had at the first attempt, and has deleted since, is sent by the second
    one.
    """
    _, without = sent(image, frozenset({image.config.digest}))
    assert image.config.read() not in without
    _, whole = sent(image, NOTHING)
    assert image.config.read() in whole
    assert image.manifest.read() in whole

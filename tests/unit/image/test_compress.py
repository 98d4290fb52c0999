"""Compressed layers are other blobs with the same content, and the image's configuration is the
same.
"""

import gzip
import json
from pathlib import Path

import pytest

from infra.image.oci import append_layer, blob
from infra.image.registry import compress
from infra.image.registry.compress import compressed
from tests.unit.image.layouts import tiny_image


def test_compressed_layers_hold_the_same_tar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed layer contains the tar of the original one, and is one gzip file even if it was
    compressed in many parts, as a layer of gigabytes is.
    """
    monkeypatch.setattr(compress, "PART_BYTES", 1000)
    image = tiny_image(b"torch" * 10_000)
    smaller = compressed(image, tmp_path / "layers")
    (layer,) = smaller.layers
    content = layer.read()
    assert gzip.decompress(content) == image.layers[0].read()
    assert (layer.digest, layer.size_bytes) == (blob(content).digest, len(content))
    assert smaller.config == image.config
    (entry,) = json.loads(smaller.manifest.read())["layers"]
    assert entry == {
        "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
        "digest": layer.digest,
        "size": layer.size_bytes,
    }


def test_same_layers_are_compressed_to_the_same_blobs(tmp_path: Path) -> None:
    """The same layer is always compressed to the same blob. Otherwise each push of the same
    dependencies would send them again.
    """
    image = tiny_image()
    first, second = (compressed(image, tmp_path / name) for name in ("a", "b"))
    assert first.manifest.digest == second.manifest.digest
    assert compressed(first, tmp_path / "c").manifest.digest == first.manifest.digest


def test_appended_layer_is_compressed_when_asked() -> None:
    """In an image with an appended compressed layer, the configuration names the digest of the tar,
    and the manifest that of the blob.
    """
    image = append_layer(tiny_image(), b"tar", "tests", compress=True)
    assert gzip.decompress(image.layers[-1].read()) == b"tar"
    diff_ids = json.loads(image.config.read())["rootfs"]["diff_ids"]
    assert diff_ids[-1] == blob(b"tar").digest
    assert json.loads(image.manifest.read())["layers"][-1]["mediaType"].endswith("+gzip")

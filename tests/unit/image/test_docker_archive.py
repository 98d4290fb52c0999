"""What `docker save` writes, of old and new versions of docker, becomes an OCI layout."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from infra.image.docker_archive import write_layout
from infra.image.oci import blob, read_layout
from tests.unit.image.layouts import tar_bytes

CONFIG = b'{"architecture":"amd64","os":"linux"}'
LAYER = tar_bytes({"a": b"1"})


def manifest(config: str, layers: list[str]) -> bytes:
    """Return the file manifest.json of an archive with these names of files."""
    return json.dumps([{"Config": config, "RepoTags": ["x:1"], "Layers": layers}]).encode()


def layer_types(layout: Path) -> list[str]:
    """Return the types of the layout's layers, such as `tar+gzip`."""
    layers = json.loads(read_layout(layout).manifest.read())["layers"]
    return [layer["mediaType"].rpartition(".")[2] for layer in layers]


def test_an_archive_of_an_old_docker_with_a_link_for_a_second_equal_layer(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in {
            "aaa/VERSION": b"1.0",
            "aaa/layer.tar": LAYER,
            "config.json": CONFIG,
            "manifest.json": manifest("config.json", ["aaa/layer.tar", "bbb/layer.tar"]),
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("bbb/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../aaa/layer.tar"
        tar.addfile(link)
    buffer.seek(0)
    write_layout(buffer, tmp_path / "layout")
    image = read_layout(tmp_path / "layout")
    assert image.config.read() == CONFIG
    assert [layer.read() for layer in image.layers] == [LAYER, LAYER]
    assert layer_types(tmp_path / "layout") == ["tar", "tar"]
    kept = {path.name for path in (tmp_path / "layout/blobs/sha256").iterdir()}
    assert kept == {part.digest[7:] for part in image.blobs}


def test_an_archive_of_a_new_docker_with_packed_layers(tmp_path: Path) -> None:
    packed = gzip.compress(LAYER)
    zstd = b"\x28\xb5\x2f\xfd rest"
    names = {
        f"blobs/sha256/{blob(part).digest[7:]}": part for part in (packed, zstd, LAYER, CONFIG)
    }
    *layers, config = names
    archive = tar_bytes(
        {
            **names,
            "index.json": b'{"manifests": []}',
            "oci-layout": b"{}",
            "manifest.json": manifest(config, layers),
        }
    )
    write_layout(io.BytesIO(archive), tmp_path / "layout")
    assert layer_types(tmp_path / "layout") == ["tar+gzip", "tar+zstd", "tar"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a": b"1"}, "holds no image"),
        ({"manifest.json": b"[]"}, "holds 0 images"),
        ({"manifest.json": manifest("c", [])}, "names c and does not hold it"),
        (
            {"manifest.json": manifest("c", ["l"]), "c": CONFIG},
            "names l and does not hold it",
        ),
    ],
)
def test_an_archive_without_a_whole_image_is_refused(
    tmp_path: Path, files: dict[str, bytes], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        write_layout(io.BytesIO(tar_bytes(files)), tmp_path / "layout")

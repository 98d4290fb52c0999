"""Images in the format OCI: the layer with the code, appended layers, and archives for
containerd.
"""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from infra.image.oci import (
    Blob,
    Image,
    append_layer,
    archive_size_bytes,
    as_json,
    blob,
    code_layer,
    image_at_node,
    read_layout,
    write_archive,
)
from tests.unit.image.layouts import tiny_image, write_layout


def files(root: Path) -> list[tuple[str, Path]]:
    """Write two files of the trainer below `root`; return their names in the image, and their
    paths.
    """
    for name in ("trainer/__main__.py", "trainer/sub/b.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return [(name, root / name) for name in ("trainer/__main__.py", "trainer/sub/b.txt")]


def entries(layer: bytes) -> list[tarfile.TarInfo]:
    """Return the entries of a layer."""
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return tar.getmembers()


def read_archive(archive: bytes) -> dict[str, bytes]:
    """Return the contents of an archive's files by name."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            found[member.name] = content.read()
    return found


def test_the_code_layer_is_the_same_bytes_on_every_machine(tmp_path: Path) -> None:
    """The layer with the code does not depend on the folder or the rights of the files."""
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    for _, path in two:
        path.chmod(0o600)
    assert code_layer(one) == code_layer(two)


def test_the_code_belongs_to_root_and_everybody_may_read_it(tmp_path: Path) -> None:
    members = entries(code_layer(files(tmp_path)))
    assert [(m.name, oct(m.mode), m.isdir()) for m in members] == [
        ("app", "0o755", True),
        ("app/trainer", "0o755", True),
        ("app/trainer/__main__.py", "0o644", False),
        ("app/trainer/sub", "0o755", True),
        ("app/trainer/sub/b.txt", "0o644", False),
    ]
    assert {(m.uid, m.gid, m.mtime, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}


def test_long_names_and_other_alphabets_survive(tmp_path: Path) -> None:
    """File names of more than 100 characters and with letters beyond ASCII are kept in the
    layer.
    """
    name = "trainer/" + "d" * 90 + "/" + "f" * 90 + "-ä.py"
    path = tmp_path / "file"
    path.write_text("x")
    assert f"app/{name}" in [m.name for m in entries(code_layer([(name, path)]))]


def test_an_appended_layer_leaves_the_lower_layers_and_the_settings_as_they_are() -> None:
    """An appended layer is the last one of the image, and the lower layers and the configuration
    stay the same.
    """
    deps = tiny_image()
    image = append_layer(deps, b"layer", "by a test")
    manifest, config = json.loads(image.manifest.read()), json.loads(image.config.read())
    before = json.loads(deps.config.read())
    top = blob(b"layer")
    assert image.layers == (*deps.layers, top)
    assert [layer["digest"] for layer in manifest["layers"]] == [x.digest for x in image.layers]
    assert manifest["config"]["digest"] == image.config.digest
    assert manifest["config"]["size"] == len(image.config.read())
    assert config["config"] == before["config"]
    assert config["rootfs"]["diff_ids"] == [*before["rootfs"]["diff_ids"], top.digest]
    assert config["history"][-1] == {"created_by": "by a test"}


def test_appending_the_same_layer_gives_the_same_digest_from_a_layout_and_from_the_node(
    tmp_path: Path,
) -> None:
    """The image has the same digest whether its lower layers are in a layout here or on the
    node.
    """
    deps = tiny_image()
    from_layout = append_layer(read_layout(write_layout(tmp_path / "l", deps)), b"layer", "x")
    node = image_at_node(deps.manifest.read(), deps.config.read())
    assert append_layer(node, b"layer", "x").manifest.digest == from_layout.manifest.digest


def test_an_archive_holds_all_that_the_receiver_lacks_and_nothing_else() -> None:
    """An archive contains only the blobs that the receiver lacks, and the names of all images."""
    deps = tiny_image()
    image = append_layer(deps, b"layer", "x")
    held = frozenset(part.digest for part in deps.blobs)
    stream = io.BytesIO()
    images = {"host/deps:1": deps, "host/image:1": image}
    write_archive(stream, images, held)
    moved = archive_size_bytes(images, held)
    archive = read_archive(stream.getvalue())
    new = {p.digest: p.read() for p in image.blobs if p.digest not in held}
    assert len(new) == 3  # manifest, config, code
    assert moved == sum(map(len, new.values()))
    assert {n: c for n, c in archive.items() if n.startswith("blobs/")} == {
        f"blobs/sha256/{digest.removeprefix('sha256:')}": content for digest, content in new.items()
    }
    named: list[dict[str, Any]] = json.loads(archive["index.json"])["manifests"]
    assert {
        entry["annotations"]["io.containerd.image.name"]: entry["digest"] for entry in named
    } == {"host/deps:1": deps.manifest.digest, "host/image:1": image.manifest.digest}
    assert json.loads(archive["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}


def test_blobs_from_files_of_any_length_are_written_as_they_are(tmp_path: Path) -> None:
    """Blobs of any length, at the edges of tar's blocks of 512 bytes too, are the same in the
    archive.
    """
    contents = [bytes([n % 256]) * n for n in (1, 511, 512, 513, 3_000_000)]
    parts: list[Blob] = []
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
        parts.append(Blob(blob(content).digest, len(content), tmp_path / str(number)))
    stream = io.BytesIO()
    write_archive(stream, {"h/i:1": Image(blob(b"{}"), blob(b"[]"), tuple(parts))})
    archive = read_archive(stream.getvalue())
    assert [archive[f"blobs/sha256/{p.digest[7:]}"] for p in parts] == contents


def test_a_damaged_layout_is_refused_by_name(tmp_path: Path) -> None:
    """A layout whose blob is missing or cut off is refused, and the error names the blob."""
    deps = tiny_image()
    layout = write_layout(tmp_path / "layout", deps)
    path = layout / "blobs" / "sha256" / deps.layers[0].digest[7:]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"blob {deps.layers[0].digest} is missing or cut off"):
        read_layout(layout)
    path.unlink()
    with pytest.raises(ValueError, match="missing or cut off"):
        read_layout(layout)
    (layout / "index.json").write_bytes(as_json({"manifests": []}))
    with pytest.raises(ValueError, match="holds 0 images"):
        read_layout(layout)

"""OCI image parts as plain data: the code layer, the config and manifest that append it, archives.

Formats: https://github.com/opencontainers/image-spec (image-layout.md, manifest.md, config.md).
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
# The two annotations by which containerd and other tools name an imported image.
NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


@dataclass(frozen=True)
class Blob:
    """Content addressed by its digest: either in memory or a file."""

    digest: str
    size_bytes: int
    content: bytes | Path

    def read(self) -> bytes:
        """The whole content."""
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


@dataclass(frozen=True)
class Image:
    """An image as its manifest blob and the blobs that the manifest names (config, layers)."""

    manifest: Blob
    parts: tuple[Blob, ...]

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """All blobs, the manifest first."""
        return (self.manifest, *self.parts)


def blob(content: bytes) -> Blob:
    """A blob in memory."""
    return Blob(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), content)


def as_json(value: Mapping[str, Any]) -> bytes:
    """The one JSON text of a value: sorted, without spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def read_layout(layout: Path) -> Image:
    """The single image of an OCI layout folder.

    Raises:
        ValueError: the folder holds no image, or more than one.
    """
    index = _load(layout / "index.json")
    manifests = index["manifests"]
    if len(manifests) != 1:
        raise ValueError(f"{layout}: holds {len(manifests)} images, expected one")
    manifest_blob = _file_blob(layout, manifests[0])
    manifest = json.loads(manifest_blob.read())
    parts = (manifest["config"], *manifest["layers"])
    return Image(manifest_blob, tuple(_file_blob(layout, part) for part in parts))


def code_layer(files: Iterable[tuple[str, Path]], folder: str = "app") -> bytes:
    """An uncompressed layer with the files below `/<folder>`: same files, same bytes.

    Owned by root and not writable for others, so that the running code cannot change itself.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        made: set[str] = set()
        for name, path in files:
            full = f"{folder}/{name}"
            for parent in reversed(Path(full).parents[:-1]):
                if str(parent) not in made:
                    made.add(str(parent))
                    tar.addfile(_entry(str(parent), tarfile.DIRTYPE, 0o755))
            content = path.read_bytes()
            entry = _entry(full, tarfile.REGTYPE, 0o644)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def append_layer(image: Image, layer: bytes, created_by: str) -> Image:
    """The image plus one layer on top; all other layers stay the same blobs."""
    manifest = cast(dict[str, Any], json.loads(image.manifest.read()))
    config = cast(dict[str, Any], json.loads(image.parts[0].read()))
    top = blob(layer)
    config["rootfs"]["diff_ids"].append(top.digest)  # uncompressed: digest and diff id are equal
    config.setdefault("history", []).append({"created_by": created_by})
    config.pop("created", None)
    new_config = blob(as_json(config))
    manifest["config"] |= {"digest": new_config.digest, "size": new_config.size_bytes}
    manifest["layers"].append(
        {"mediaType": LAYER_TYPE, "digest": top.digest, "size": top.size_bytes}
    )
    return Image(blob(as_json(manifest)), (new_config, *image.parts[1:], top))


def write_archive(stream: Any, images: Mapping[str, Image], held: frozenset[str]) -> int:
    """Write an OCI archive with the images' blobs that are not in `held`.

    Args:
        stream: binary file to write to.
        images: `{full name: image}`.
        held: digests that the receiver already has.

    Returns:
        Number of content bytes written.
    """
    entries = [
        {
            "mediaType": MANIFEST_TYPE,
            "digest": image.manifest.digest,
            "size": image.manifest.size_bytes,
            "annotations": dict.fromkeys(NAME_ANNOTATIONS, name),
        }
        for name, image in images.items()
    ]
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries}
    missing = {
        part.digest: part
        for image in images.values()
        for part in image.blobs
        # the manifest always goes along: importers read it from the archive
        if part.digest not in held or part is image.manifest
    }
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "oci-layout", blob(as_json({"imageLayoutVersion": "1.0.0"})))
        _add(tar, "index.json", blob(as_json(index)))
        for part in missing.values():
            _add(tar, f"blobs/{part.digest.replace(':', '/')}", part)
    return sum(part.size_bytes for part in missing.values())


def _add(tar: tarfile.TarFile, name: str, part: Blob) -> None:
    entry = _entry(name, tarfile.REGTYPE, 0o644)
    entry.size = part.size_bytes
    if isinstance(part.content, bytes):
        tar.addfile(entry, io.BytesIO(part.content))
    else:
        with part.content.open("rb") as file:
            tar.addfile(entry, file)


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry


def _file_blob(layout: Path, descriptor: Mapping[str, Any]) -> Blob:
    digest = str(descriptor["digest"])
    return Blob(digest, int(descriptor["size"]), layout / "blobs" / digest.replace(":", "/"))


def _load(path: Path) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(path.read_bytes()))

"""Handles OCI images as plain data: reads layouts, appends the code layer, writes archives.

Formats: https://github.com/opencontainers/image-spec/tree/v1.1.0 (image-layout, manifest, config).
"""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
# https://github.com/opencontainers/image-spec/blob/v1.1.0/annotations.md
ANNOTATION = "org.opencontainers.image"
NAME_ANNOTATION = "io.containerd.image.name"  # the name that containerd gives to an imported image
COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Blob:
    """Content with its digest: in memory, in a file, or None if it is only at the node."""

    digest: str
    size_bytes: int
    content: bytes | Path | None

    def read(self) -> bytes:
        """Return the whole content, which must be on this machine."""
        assert self.content is not None, f"{self.digest} is not on this machine"
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


@dataclass(frozen=True)
class Image:
    """An image: its manifest, its config, and its layers from the lowest to the highest."""

    manifest: Blob
    config: Blob
    layers: tuple[Blob, ...]

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """All blobs, with the manifest first."""
        return (self.manifest, self.config, *self.layers)


def blob(content: bytes) -> Blob:
    """Return a blob in memory with this content."""
    return Blob(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), content)


def as_json(value: Mapping[str, Any]) -> bytes:
    """Return a value as JSON with sorted keys and no spaces, so that it is always the same text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def descriptor(media_type: str, part: Blob) -> dict[str, Any]:
    """Return the descriptor by which one blob refers to another."""
    return {"mediaType": media_type, "digest": part.digest, "size": part.size_bytes}


def read_layout(layout: Path) -> Image:
    """Return the only image of an OCI layout folder.

    Raises:
        ValueError: the folder holds no image or several, or a blob is missing or cut off.
    """
    manifests = _load((layout / "index.json").read_bytes())["manifests"]
    if len(manifests) != 1:
        raise ValueError(f"{layout}: holds {len(manifests)} images, expected one")

    def local(entry: Mapping[str, Any]) -> Blob:
        path = blob_path(layout, entry["digest"])
        if not path.is_file() or path.stat().st_size != entry["size"]:
            raise ValueError(f"{layout}: blob {entry['digest']} is missing or cut off")
        return Blob(entry["digest"], entry["size"], path)

    manifest = local(manifests[0])
    parts = _load(manifest.read())
    return Image(manifest, local(parts["config"]), tuple(map(local, parts["layers"])))


def image_at_node(manifest: bytes, config: bytes) -> Image:
    """Return an image whose manifest and config are known, and whose layers are at the node."""
    layers = (Blob(e["digest"], e["size"], None) for e in _load(manifest)["layers"])
    return Image(blob(manifest), blob(config), tuple(layers))


def config_digest(manifest: bytes) -> str:
    """Return the digest of the config that a manifest names."""
    return str(_load(manifest)["config"]["digest"])


def blob_path(layout: Path, digest: str) -> Path:
    """Return the path of a blob in an OCI layout."""
    return layout / "blobs" / digest.replace(":", "/")


def code_layer(files: Iterable[tuple[str, Path]], folder: str = "app") -> bytes:
    """Return an uncompressed layer with the files below `/<folder>`. Same files give same bytes.

    The files belong to root and nobody else can write them, so that running code cannot change
    itself.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
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


def image_annotations(image: Image) -> dict[str, str]:
    """Return the annotations of an image's manifest."""
    return cast(dict[str, str], _load(image.manifest.read()).get("annotations") or {})


def append_layer(
    image: Image,
    layer: bytes,
    created_by: str,
    annotations: Mapping[str, str] | None = None,
    *,
    compress: bool = False,
) -> Image:
    """Return the image with one more layer, a tar, on top. All other layers stay the same blobs.

    Annotations are added to the manifest, where registries look for them, and as labels to the
    configuration, where container runtimes look.
    """
    manifest = _load(image.manifest.read())
    config = _load(image.config.read())
    plain = blob(layer)
    top = blob(gzip.compress(layer, mtime=0)) if compress else plain
    config["rootfs"]["diff_ids"].append(plain.digest)
    config.setdefault("history", []).append({"created_by": created_by})
    if annotations:
        settings = config.setdefault("config", {})
        settings["Labels"] = {**(settings.get("Labels") or {}), **annotations}
        manifest["annotations"] = {**(manifest.get("annotations") or {}), **annotations}
    new_config = blob(as_json(config))
    manifest["config"] = descriptor(CONFIG_TYPE, new_config)
    kind = f"{LAYER_TYPE}+gzip" if compress else LAYER_TYPE
    manifest["layers"].append(descriptor(kind, top))
    return Image(blob(as_json(manifest)), new_config, (*image.layers, top))


def write_archive(
    stream: IO[bytes], images: Mapping[str, Image], held: frozenset[str] = frozenset()
) -> None:
    """Write an OCI archive with the images' blobs that are not in `held`.

    Args:
        stream: gets the tar. It need not be seekable.
        images: `{full name: image}`.
        held: digests of the blobs that the receiver already has.
    """
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [
            {
                **descriptor(MANIFEST_TYPE, image.manifest),
                "annotations": {NAME_ANNOTATION: name},
            }
            for name, image in images.items()
        ],
    }
    _add(stream, "oci-layout", blob(as_json({"imageLayoutVersion": "1.0.0"})))
    _add(stream, "index.json", blob(as_json(index)))
    for part in _missing(images, held):
        _add(stream, f"blobs/{part.digest.replace(':', '/')}", part)
    stream.write(bytes(2 * tarfile.BLOCKSIZE))  # the end of a tar


def archive_size_bytes(images: Mapping[str, Image], held: frozenset[str]) -> int:
    """Return the content bytes of the archive that `write_archive` writes for these arguments."""
    return sum(part.size_bytes for part in _missing(images, held))


def _missing(images: Mapping[str, Image], held: frozenset[str]) -> list[Blob]:
    parts = {part.digest: part for image in images.values() for part in image.blobs}
    return [part for digest, part in parts.items() if digest not in held]


def _add(stream: IO[bytes], name: str, part: Blob) -> None:
    entry = _entry(name, tarfile.REGTYPE, 0o644)
    entry.size = part.size_bytes
    stream.write(entry.tobuf(tarfile.PAX_FORMAT))
    if isinstance(part.content, Path):
        with part.content.open("rb") as file:
            shutil.copyfileobj(file, stream, COPY_BYTES)
    else:
        stream.write(part.read())
    stream.write(bytes(-part.size_bytes % tarfile.BLOCKSIZE))


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)  # Its uid, gid and mtime are 0.
    entry.type, entry.mode = kind, mode
    return entry


def _load(text: bytes) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(text))

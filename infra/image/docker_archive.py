"""Turns an archive of `docker save` or `podman save` of any version into an OCI layout.

https://github.com/moby/docker-image-spec/blob/v1.3.1/README.md
"""

import hashlib
import json
import posixpath
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any

from infra.image.oci import (
    CONFIG_TYPE,
    COPY_BYTES,
    LAYER_TYPE,
    MANIFEST_TYPE,
    Blob,
    as_json,
    blob,
    blob_path,
    descriptor,
)

# The first bytes of compressed layers. docker's containerd store saves layers as they were pulled.
_PACKED = {b"\x1f\x8b": f"{LAYER_TYPE}+gzip", b"\x28\xb5\x2f\xfd": f"{LAYER_TYPE}+zstd"}


def write_layout(archive: IO[bytes], layout: Path) -> None:
    """Write the only image of a docker archive as an OCI layout, without a second copy on the disk.

    Args:
        archive: the tar. It need not be seekable.
        layout: the folder that is made.

    Raises:
        ValueError: the archive holds no image, or several, or names a layer that it lacks.
    """
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    found: dict[str, Blob] = {}
    links: dict[str, str] = {}
    with tarfile.open(fileobj=archive, mode="r|", bufsize=COPY_BYTES) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content:
                found[member.name] = _store(content, blobs)
            elif member.issym():  # docker before 25 writes a link for a layer that occurs twice.
                target = posixpath.join(posixpath.dirname(member.name), member.linkname)
                links[member.name] = posixpath.normpath(target)
    if "manifest.json" not in found:
        raise ValueError("the archive holds no image (no manifest.json)")
    images: list[dict[str, Any]] = json.loads(found["manifest.json"].read())
    if len(images) != 1:
        raise ValueError(f"the archive holds {len(images)} images, expected one")

    def part(name: str) -> Blob:
        name = links.get(name, name)
        if name not in found:
            raise ValueError(f"the archive names {name} and does not hold it")
        return found[name]

    config = part(images[0]["Config"])
    layers = [part(name) for name in images[0]["Layers"]]
    manifest = blob(
        as_json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "config": descriptor(CONFIG_TYPE, config),
                "layers": [descriptor(_layer_type(layer), layer) for layer in layers],
            }
        )
    )
    used = {blob_path(layout, part.digest) for part in (config, *layers)}
    for path in set(blobs.iterdir()) - used:
        path.unlink()
    blob_path(layout, manifest.digest).write_bytes(manifest.read())
    (layout / "oci-layout").write_bytes(as_json({"imageLayoutVersion": "1.0.0"}))
    index = {"schemaVersion": 2, "manifests": [descriptor(MANIFEST_TYPE, manifest)]}
    (layout / "index.json").write_bytes(as_json(index))


def _store(content: IO[bytes], blobs: Path) -> Blob:
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=blobs, delete=False) as file:
        while chunk := content.read(COPY_BYTES):
            digest.update(chunk)
            file.write(chunk)
        size = file.tell()
    path = Path(file.name).rename(blobs / digest.hexdigest())
    path.chmod(0o644)
    return Blob(f"sha256:{digest.hexdigest()}", size, path)


def _layer_type(layer: Blob) -> str:
    assert isinstance(layer.content, Path)
    with layer.content.open("rb") as file:
        start = file.read(4)
    return next((kind for magic, kind in _PACKED.items() if start.startswith(magic)), LAYER_TYPE)

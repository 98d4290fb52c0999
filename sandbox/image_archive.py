"""Writes a container image with one static program as an OCI archive, without an image builder.

https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Python's name: Go's name


def image_archive(program: Path, image: str, user: str = "", folder: str = "") -> bytes:
    """An archive for `ctr images import` with the image `image`, whose entrypoint is `program`.

    The program lies in `folder` of the image, such as `bin` (empty: the image's root folder), and
    runs as `user` (a number; empty: as root). The same program always gives the same bytes.
    """
    path = f"{folder}/{program.name}" if folder else program.name
    layer = _tar({path: program.read_bytes()}, mode=0o755)
    settings: dict[str, Any] = {"Entrypoint": [f"/{path}"]}
    return layer_archive(layer, image, {**settings, "User": user} if user else settings)


def layer_archive(layer: bytes, image: str, settings: Mapping[str, Any]) -> bytes:
    """An archive for `ctr images import` with `image`, whose one layer is `layer`.

    `layer` is an uncompressed tar. `settings` go into the image's configuration, such as
    Entrypoint and Env.
    """
    packed = gzip.compress(layer, compresslevel=1, mtime=0)
    config = _json(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    media = "application/vnd.oci.image"
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{media}.manifest.v1+json",
            "config": _descriptor(f"{media}.config.v1+json", config),
            "layers": [_descriptor(f"{media}.layer.v1.tar+gzip", packed)],
        }
    )
    entry = _descriptor(f"{media}.manifest.v1+json", manifest)
    index = {
        "schemaVersion": 2,
        "manifests": [{**entry, "annotations": {"io.containerd.image.name": image}}],
    }
    blobs = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (packed, config, manifest)}
    head = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    return _tar({**head, **blobs}, mode=0o644)


def _descriptor(media_type: str, blob: bytes) -> Mapping[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _tar(files: Mapping[str, bytes], mode: int) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()

"""Compresses an image's layers for a registry, so that less is sent to every node."""

import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, cast

from infra.image.oci import Blob, Image, as_json, blob
from infra.image.parts import LEVEL, PART_BYTES, at_once

GZIP = "+gzip"


def compressed(image: Image, folder: Path) -> Image:
    """Return the image with every uncompressed layer compressed. The configuration stays the same.

    Args:
        image: the image. The content of its layers must be on this machine.
        folder: folder for the compressed layers. Files of an earlier attempt are overwritten.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = cast(dict[str, Any], json.loads(image.manifest.read()))
    layers: list[Blob] = []
    for entry, layer in zip(manifest["layers"], image.layers, strict=True):
        if entry["mediaType"].endswith(".tar"):
            layer = _compressed_blob(layer, folder / layer.digest.partition(":")[2])
            entry |= {"mediaType": entry["mediaType"] + GZIP}
            entry |= {"digest": layer.digest, "size": layer.size_bytes}
        layers.append(layer)
    return Image(blob(as_json(manifest)), image.config, tuple(layers))


def _compressed_blob(layer: Blob, file: Path) -> Blob:
    """Compress a layer into a file.

    Its pieces are compressed at the same time. Several gzip members in a row are one gzip file.
    """
    digest, size_bytes = hashlib.sha256(), 0
    with file.open("wb") as target, _open(layer) as source:
        for piece in _pieces(source):
            digest.update(piece)
            size_bytes += target.write(piece)
    return Blob(f"sha256:{digest.hexdigest()}", size_bytes, file)


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the compressed pieces in order, with at most `at_once()` of them in memory."""
    threads = at_once()
    with ThreadPoolExecutor(threads) as pool:
        while raw := [piece for _ in range(threads) if (piece := source.read(PART_BYTES))]:
            yield from pool.map(_piece, raw)


def _piece(raw: bytes) -> bytes:
    return gzip.compress(raw, LEVEL, mtime=0)


def _open(layer: Blob) -> IO[bytes]:
    assert layer.content is not None, f"{layer.digest} is not on this machine"
    return (
        layer.content.open("rb") if isinstance(layer.content, Path) else io.BytesIO(layer.content)
    )

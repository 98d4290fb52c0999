"""Layers as registries keep them: compressed, so that they are smaller on the way to every node."""

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
    """The image with each plain layer compressed; the configuration stays the same.

    Args:
        image: its layers' content lies on this machine.
        folder: takes the compressed layers; those of a broken-off attempt are not used.
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
    """Pieces are compressed side by side; gzip's format joins them by writing them in a row."""
    digest, size_bytes = hashlib.sha256(), 0
    with file.open("wb") as target, _open(layer) as source:
        for piece in _pieces(source):
            digest.update(piece)
            size_bytes += target.write(piece)
    return Blob(f"sha256:{digest.hexdigest()}", size_bytes, file)


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    """In order; no more of them are in memory than are compressed at the same time."""
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

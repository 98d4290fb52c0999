"""The safetensors format: named tensors in one file, nothing that could run.

    8 bytes      length of the header, little-endian
    header       JSON: name -> {"dtype", "shape", "data_offsets": [begin, end]}; "__metadata__"
    data         the tensors, row-major, little-endian, without gaps; offsets count from here

Own code, because two short functions are cheaper than one more compiled package in the image.
Format: https://github.com/huggingface/safetensors
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch

from trainer.durable import fsync_directory

_LENGTH = struct.Struct("<Q")
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is truncated, damaged, or has a type that is not known here.
    """
    content = bytearray(path.read_bytes())  # writable, or torch would warn
    if len(content) < _LENGTH.size:
        raise ValueError(f"{path}: not a safetensors file: {len(content)} bytes")
    (header_bytes,) = _LENGTH.unpack_from(content)
    data_start = _LENGTH.size + header_bytes
    if data_start > len(content):
        raise ValueError(
            f"{path}: truncated or not a safetensors file: its header should have {header_bytes} "
            f"bytes, the whole file has {len(content)}"
        )
    try:
        header = json.loads(content[_LENGTH.size : data_start])
        entries = {
            str(name): _Entry(entry) for name, entry in header.items() if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: its header is damaged: {error!r}") from error
    tensors: dict[str, torch.Tensor] = {}
    for name, entry in entries.items():
        if entry.end > len(content) - data_start:
            raise ValueError(
                f"{path}: truncated: {name} should end at byte {data_start + entry.end}, the file "
                f"has {len(content)}"
            )
        raw = content[data_start + entry.begin : data_start + entry.end]
        flat = torch.frombuffer(raw, dtype=entry.dtype) if raw else torch.empty(0)
        tensors[name] = flat.to(entry.dtype).reshape(entry.shape)
    return tensors


class _Entry:
    """One tensor of a header. Raises ValueError, KeyError or TypeError where it is damaged."""

    def __init__(self, entry: Mapping[str, Any]):
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"dtype {entry['dtype']!r}; allowed: {', '.join(_DTYPES)}")
        self.dtype = _DTYPES[entry["dtype"]]
        self.shape = [int(size) for size in entry["shape"]]
        self.begin, self.end = (int(offset) for offset in entry["data_offsets"])
        wanted = math.prod(self.shape) * self.dtype.itemsize
        if min([self.begin, *self.shape]) < 0 or self.end - self.begin != wanted:
            raise ValueError(f"shape {self.shape} does not fit {self.begin}:{self.end}")


def write_safetensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]
) -> None:
    """Write the tensors under a temporary name and rename it. Raises OSError."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # so that the data is aligned
    building = path.with_name(f".tmp-{path.name}")
    try:
        with building.open("wb") as file:
            file.write(_LENGTH.pack(len(encoded)))
            file.write(encoded)
            for tensor in tensors.values():
                flat = tensor.detach().cpu().contiguous().flatten()
                file.write(cast(Any, flat.view(torch.uint8).numpy()).data)
            file.flush()
            os.fsync(file.fileno())
        building.replace(path)
        fsync_directory(path.parent)
    finally:
        building.unlink(missing_ok=True)

"""Describes which bytes of which file of a checkpoint hold which part of which tensor.

`torch.distributed.checkpoint` (DCP) decides which rank writes which part, and which parts a rank
has to read. So a checkpoint can be read by any number of ranks, however they share the model. The
bytes are in plain files, and their description is JSON, so that reading a checkpoint can never run
code. DCP's own files are pickled, and could.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64)
}
_FILE_NAME = re.compile(r"[a-z]+-\d{5}\.bin")
_ALIGNMENT_BYTES = 64  # This suits every type of element, and vector instructions.


@dataclass(frozen=True)
class Part:
    """A box of a tensor: its begin in the tensor, its shape, and the place of its bytes."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    begin_byte: int


@dataclass(frozen=True)
class SavedTensor:
    """The type and shape of a whole tensor, and the parts in which it is saved."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: tuple[Part, ...]


Layout = Mapping[str, SavedTensor]
"""The saved tensors by name: `model.<parameter>` or `optimizer.<parameter>.<kind>`."""


@dataclass(frozen=True)
class OwnFile:
    """A file of one rank, with its size.

    `begins` has the names of the tensors of which it holds a part, each with the part's first byte.
    """

    name: str
    begins: tuple[tuple[str, int], ...]
    size_bytes: int


def plan(tensors: Mapping[str, torch.Tensor]) -> Any:
    """Make DCP's local plan, the parts of `tensors` that this rank could write.

    `agree` needs the plans of all ranks.
    """
    from torch.distributed.checkpoint import DefaultSavePlanner

    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(dict(tensors))
    return planner.create_local_plan()


def agree(plans: Sequence[Any]) -> tuple[Layout, list[list[OwnFile]]]:
    """Make the layout of the checkpoint, and the files of each rank, from the plans of all ranks.

    If several ranks have the same tensor, the rank with the least to write so far writes it. Every
    rank computes the same result from the same plans.
    """
    from torch.distributed.checkpoint import DefaultSavePlanner

    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    global_plans, _ = planner.create_global_plan(list(plans))
    found: dict[str, tuple[torch.dtype, tuple[int, ...], list[Part]]] = {}
    files: list[list[OwnFile]] = []
    for rank, global_plan in enumerate(global_plans):
        begins: dict[str, list[tuple[str, int]]] = {}
        ends: dict[str, int] = {}
        for item in global_plan.items:
            data, name = item.tensor_data, item.index.fqn
            assert data is not None
            dtype, shape = data.properties.dtype, tuple(data.chunk.sizes)
            parts = found.setdefault(name, (dtype, tuple(data.size), []))[2]
            if 0 in shape:  # This rank has none of the tensor's few rows.
                continue
            file = f"{name.partition('.')[0]}-{rank:05d}.bin"
            begin = -(-ends.get(file, 0) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
            ends[file] = begin + math.prod(shape) * dtype.itemsize
            begins.setdefault(file, []).append((name, begin))
            parts.append(Part(tuple(data.chunk.offsets), shape, file, begin))
        files.append([OwnFile(f, tuple(found), ends[f]) for f, found in begins.items()])
    layout = {
        name: SavedTensor(dtype, shape, tuple(parts))
        for name, (dtype, shape, parts) in sorted(found.items())
    }
    return layout, files


def to_text(layout: Layout) -> str:
    """Return a layout as JSON."""
    values = {
        name: {
            "dtype": str(saved.dtype).removeprefix("torch."),
            "shape": saved.shape,
            "parts": [dataclasses.asdict(part) for part in saved.parts],
        }
        for name, saved in layout.items()
    }
    return json.dumps({"tensors": values}) + "\n"


def from_text(text: str) -> Layout:
    """The inverse of `to_text`.

    Raises:
        ValueError: The text is not the JSON of a layout, or the parts do not fill the tensors.
    """
    try:
        return {
            str(name): _checked(
                str(name),
                SavedTensor(
                    _DTYPES[entry["dtype"]],
                    tuple(int(size) for size in entry["shape"]),
                    tuple(
                        Part(
                            tuple(int(n) for n in part["offset"]),
                            tuple(int(n) for n in part["shape"]),
                            str(part["file"]),
                            int(part["begin_byte"]),
                        )
                        for part in entry["parts"]
                    ),
                ),
            )
            for name, entry in json.loads(text)["tensors"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is damaged: {error!r}") from error


def _checked(name: str, saved: SavedTensor) -> SavedTensor:
    for part in saved.parts:
        fits = len(part.offset) == len(part.shape) == len(saved.shape) and all(
            begin >= 0 and size > 0 and begin + size <= whole
            for begin, size, whole in zip(part.offset, part.shape, saved.shape, strict=True)
        )
        if not fits or part.begin_byte < 0 or not _FILE_NAME.fullmatch(part.file):
            raise ValueError(f"a part of {name} does not fit the tensor: {part}")
    if sum(math.prod(part.shape) for part in saved.parts) != math.prod(saved.shape):
        raise ValueError(f"the parts of {name} are not the whole tensor")
    return saved


def read_into(directory: Path, layout: Layout, tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill `tensors` (whole ones or shards, on any device) from a checkpoint's files.

    Each part is mapped into memory while it is copied. So a rank needs only the memory of one part
    in addition to the tensors themselves. No rank waits for another one here.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is shorter than the layout says.
        RuntimeError: The layout lacks a tensor, or has another shape for it.
    """
    from torch.distributed.checkpoint import DefaultLoadPlanner
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        TensorProperties,
        TensorStorageMetadata,
    )

    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    described: dict[str, Any] = {
        name: TensorStorageMetadata(
            TensorProperties(dtype=saved.dtype),
            torch.Size(saved.shape),
            [ChunkStorageMetadata(torch.Size(p.offset), torch.Size(p.shape)) for p in saved.parts],
        )
        for name, saved in layout.items()
    }
    planner.set_up_planner(dict(tensors), Metadata(described))
    for item in planner.create_local_plan().items:
        saved = layout[item.storage_index.fqn]
        assert item.storage_index.index is not None
        source = mapped_part(directory, saved, saved.parts[item.storage_index.index])
        for dim, (begin, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            source = source.narrow(dim, begin, length)
        planner.resolve_tensor(item).detach().copy_(source)


def mapped_part(directory: Path, saved: SavedTensor, part: Part) -> torch.Tensor:
    """Map a part of a file into memory, so that its pages are read when they are used.

    Changes of the tensor do not reach the file. Raises OSError, or ValueError if the file is too
    short.
    """
    size_bytes = math.prod(part.shape) * saved.dtype.itemsize
    pages = np.memmap(
        directory / part.file, np.uint8, mode="c", offset=part.begin_byte, shape=(size_bytes,)
    )
    return torch.from_numpy(pages).view(saved.dtype).reshape(part.shape)


def read_whole(directory: Path, layout: Layout, name: str) -> torch.Tensor:
    """Read one whole tensor. It is only mapped into memory if it is saved in one part."""
    saved = layout[name]
    if len(saved.parts) == 1:
        return mapped_part(directory, saved, saved.parts[0])
    whole = torch.empty(saved.shape, dtype=saved.dtype)
    for part in saved.parts:
        box = tuple(
            slice(begin, begin + size) for begin, size in zip(part.offset, part.shape, strict=True)
        )
        whole[box] = mapped_part(directory, saved, part)
    return whole

"""Reads and writes published weights: one safetensors file, or several with an index.

    model.safetensors                     holds all tensors; or
    model-00001-of-00002.safetensors      holds some of the tensors, and
    model.safetensors.index.json          says which tensor is in which file

The names are those of transformers. Only the tensors that a caller asks for are read.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from trainer.checkpoint.durable import fsync_directory, fsync_file, write_json

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_WRITTEN = re.compile(r"model(-\d{5,}-of-\d{5,})?\.safetensors(\.index\.json)?")
"""The names of the files that `write_weights` writes."""


class WeightFiles:
    """The tensors of one or several files. A tensor is read when it is asked for.

    An object of this class is a context manager, which closes the files.
    """

    def __init__(self, source: Path):
        """Open the files.

        Args:
            source: A safetensors file, an index file, or the directory that holds one of them.

        Raises:
            OSError: A file cannot be read.
            ValueError: A file is damaged, or lacks a tensor that the index names.
        """
        with ExitStack() as opened:
            self._files: dict[str, Any] = {}
            for path, names in _files_with_names(source).items():
                try:
                    file = opened.enter_context(safe_open(path, framework="pt"))
                except SafetensorError as error:
                    raise ValueError(f"{path} is damaged: {error}") from error
                found = list(file.keys())
                if missing := sorted(set(names or found) - set(found)):
                    raise ValueError(f"{path} lacks {missing[0]}, which {INDEX_FILE} says it holds")
                self._files.update(dict.fromkeys(names or found, file))
            self._opened = opened.pop_all()

    def __enter__(self) -> WeightFiles:
        return self

    def __exit__(self, *unused: object) -> None:
        self._opened.close()

    def shapes(self) -> dict[str, list[int]]:
        """The shapes of all tensors, by name. No values are read."""
        return {name: file.get_slice(name).get_shape() for name, file in self._files.items()}

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """The entries from `begin` to before `end` along the first dimension of a tensor."""
        return self._files[name].get_slice(name)[begin:end]

    def columns(self, name: str, begin: int, end: int) -> torch.Tensor:
        """The entries from `begin` to before `end` along the second dimension of a matrix."""
        return self._files[name].get_slice(name)[:, begin:end]

    def whole(self, name: str) -> torch.Tensor:
        """A whole tensor."""
        return self._files[name].get_tensor(name)


def _files_with_names(source: Path) -> dict[Path, list[str]]:
    """List the files, each with the names of the tensors to read from it; [] means all tensors."""
    index = source / INDEX_FILE
    if source.is_dir() and ((source / WEIGHTS_FILE).exists() or not index.exists()):
        return {source / WEIGHTS_FILE: []}
    if not source.is_dir():
        index = source
        if source.suffix != ".json":
            return {source: []}
    files: dict[Path, list[str]] = {}
    try:
        for name, file in json.loads(index.read_text())["weight_map"].items():
            if not isinstance(file, str) or Path(file).name != file:
                raise ValueError(f"{file!r} is not the name of a file beside it")
            files.setdefault(index.with_name(file), []).append(str(name))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is no index of weights: {error!r}") from error
    return files


def write_weights(
    directory: Path,
    sizes_bytes: Mapping[str, int],
    tensor: Callable[[str], torch.Tensor],
    largest_file_bytes: int,
) -> list[str]:
    """Write tensors to as few files as `largest_file_bytes` allows, and return the files' names.

    Args:
        directory: The directory to write. The weights of an earlier export in it are replaced,
            also if they are in another number of files.
        sizes_bytes: The size of each tensor in bytes, by name, in the order of writing.
        tensor: Returns a tensor by its name. The tensors of one file are in memory at the same
            time.
        largest_file_bytes: The largest size of a file in bytes. Only a file with a single tensor
            may be larger.

    Raises:
        OSError: A file cannot be written.
    """
    groups = _groups(sizes_bytes, largest_file_bytes)
    names = [WEIGHTS_FILE]
    if len(groups) > 1:
        names = [
            f"model-{number:05d}-of-{len(groups):05d}.safetensors"
            for number in range(1, len(groups) + 1)
        ]
    directory.mkdir(parents=True, exist_ok=True)
    # A reader of the directory must not take old weights for the new ones. Some readers ignore the
    # index and load each safetensors file that they find.
    for old in [path for path in directory.iterdir() if _WRITTEN.fullmatch(path.name)]:
        old.unlink()
    for name, group in zip(names, groups, strict=True):
        _write(directory / name, {key: tensor(key) for key in group})
    if len(groups) > 1:
        where = {key: name for name, group in zip(names, groups, strict=True) for key in group}
        total = {"total_size": sum(sizes_bytes.values())}
        write_json(directory / INDEX_FILE, {"metadata": total, "weight_map": where})
        names.append(INDEX_FILE)
    return names


def _groups(sizes_bytes: Mapping[str, int], largest_bytes: int) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    room = largest_bytes
    for name, size in sizes_bytes.items():
        if size > room and groups[-1]:
            groups.append([])
            room = largest_bytes
        groups[-1].append(name)
        room -= size
    return groups


def _write(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    building = path.with_name(f".tmp-{path.name}")
    try:
        contiguous: Sequence[tuple[str, torch.Tensor]] = [
            (name, tensor.contiguous()) for name, tensor in tensors.items()
        ]
        building.touch()
        usual_mode = stat.S_IMODE(building.stat().st_mode)
        save_file(dict(contiguous), building, {"format": "pt"})
        if stat.S_IMODE(building.stat().st_mode) != usual_mode:
            building.chmod(usual_mode)  # safetensors 0.8.0 lets only the owner read the file
        fsync_file(building)
        building.replace(path)
        fsync_directory(path.parent)
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from error
    finally:
        building.unlink(missing_ok=True)

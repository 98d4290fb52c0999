"""Copies of tensors in CPU memory, so that training can go on while they are written."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


class CpuCopy:
    """One copy, whose memory is used again for the next one (pinned for a GPU's tensors)."""

    def __init__(self, keeps: bool, whole: Callable[[torch.Tensor], torch.Tensor]):
        """`keeps`: whether this rank wants the copy; the others only help `whole` gather shards."""
        self._keeps, self._whole = keeps, whole
        self._buffers: dict[tuple[str, ...], torch.Tensor] = {}

    def take(
        self, values: Mapping[str, Any], on_taken: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """The same nested mapping with whole tensors on the CPU, good until the next call.

        All ranks must call it with the same names. Returns {} where the copy is not kept. Calls
        `on_taken`, whatever happens, once what is computed after that cannot change the copy: a
        GPU works off what it was given in its order.
        """
        try:
            result = self._take(values, ())
        finally:
            on_taken()
        if torch.cuda.is_available():
            for device in range(torch.cuda.device_count()):
                torch.cuda.synchronize(device)  # a thread of its own is not at the rank's device
        return result

    def _take(self, values: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in values.items():
            here = (*path, name)
            if not isinstance(value, torch.Tensor):
                inner = self._take(value, here)
            else:
                tensor = self._whole(value.detach())
                inner = self._copy(here, tensor) if self._keeps else None
            if self._keeps:
                result[name] = inner
        return result

    def _copy(self, path: tuple[str, ...], tensor: torch.Tensor) -> torch.Tensor:
        if path not in self._buffers:
            on_gpu = tensor.device.type == "cuda"
            self._buffers[path] = torch.empty_like(tensor, device="cpu", pin_memory=on_gpu)
        return self._buffers[path].copy_(tensor, non_blocking=True)

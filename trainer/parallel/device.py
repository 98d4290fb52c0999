"""Chooses device, arithmetic and compilation by what the machine can do.

Each choice has a reason, which goes into the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch

from trainer.config import TrainConfig
from trainer.launch.exit_codes import FatalError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Compute:
    """The device, arithmetic and compilation of one rank, with the reasons for each choice."""

    device: torch.device
    device_name: str
    dtype: torch.dtype
    compile: bool
    backend: str
    reasons: tuple[str, ...]

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context in which forward passes compute in the chosen arithmetic."""
        enabled = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype) if enabled else nullcontext()


def choose_compute(train: TrainConfig, local_rank: int) -> Compute:
    """Choose device, arithmetic, compilation and collectives for one rank.

    Raises:
        FatalError: A setting requires something that this machine does not have.
    """
    device, device_reason = _choose_device(train.device, local_rank)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    dtype, dtype_reason = _choose_dtype(train.dtype, capability)
    compiled, compile_reason = _choose_compile(train.compile, capability, device)
    backend = train.backend
    if backend == "auto":
        backend = "nccl" if device.type == "cuda" else "gloo"
    if backend == "nccl" and device.type == "cpu":
        raise FatalError(
            "train.backend: 'nccl' cannot be used: it needs a GPU, and none is visible. "
            "Set auto or gloo."
        )
    reasons = (
        f"device {device}, {name} ({device_reason})",
        f"{str(dtype).removeprefix('torch.')} ({dtype_reason})",
        f"compile {'on' if compiled else 'off'} ({compile_reason})",
        f"collectives {backend}",
    )
    return Compute(device, name, dtype, compiled, backend, reasons)


def _choose_device(setting: str, local_rank: int) -> tuple[torch.device, str]:
    count = torch.cuda.device_count() if setting != "cpu" else 0
    if setting == "cpu":
        return torch.device("cpu"), "as set"
    if count == 0:
        if setting == "cuda":
            raise FatalError(
                "train.device: 'cuda' cannot be used: no GPU is visible. Set auto or cpu."
            )
        return torch.device("cpu"), "no GPU is visible"
    # If only one GPU is visible, its number is 0, whatever the local rank is.
    index = 0 if count == 1 else local_rank
    if index >= count:
        raise FatalError(
            f"local rank {local_rank} has no GPU: {count} are visible. Start at most {count} ranks "
            "here (PET_NPROC_PER_NODE), or give the pod more GPUs (gpusPerPod)"
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device, f"{count} visible"


def _choose_dtype(setting: str, capability: tuple[int, int] | None) -> tuple[torch.dtype, str]:
    # The capability decides, because torch.cuda.is_bf16_supported() also counts emulation.
    if setting == "bfloat16" and capability is not None and capability < (8, 0):
        raise FatalError(
            "train.dtype: 'bfloat16' cannot be used: it needs compute capability 8.0, and this GPU "
            f"has {capability[0]}.{capability[1]}. Set auto, float32 or float16."
        )
    if setting == "float16" and capability is None:
        raise FatalError(
            "train.dtype: 'float16' cannot be used: it needs a GPU. Set auto, float32 or bfloat16."
        )
    if setting != "auto":
        return DTYPES[setting], "as set"
    if capability is None:
        return torch.float32, "CPU"
    text = f"compute capability {capability[0]}.{capability[1]}"
    return (torch.bfloat16 if capability >= (8, 0) else torch.float16), text


def _choose_compile(
    setting: str, capability: tuple[int, int] | None, device: torch.device
) -> tuple[bool, str]:
    if setting == "off":
        return False, "as set"
    if setting == "on":
        if (problem := trial_compile(device)) is not None:
            raise FatalError(f"train.compile: 'on' cannot be used: {problem}. Set auto or off.")
        return True, "as set"
    if capability is None:
        return False, "CPU"
    if capability < (7, 0):
        return False, f"needs compute capability 7.0, this GPU has {capability[0]}.{capability[1]}"
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        return False, "Triton needs a C compiler and there is none"
    if (problem := trial_compile(device)) is not None:
        return False, f"a trial failed: {problem}"
    return True, "a trial succeeded"


def trial_compile(device: torch.device) -> str | None:
    """Compile a small function for `device`. Return why that failed, or None if it succeeded."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2.0).relu()

    try:
        compiled = cast(Callable[[torch.Tensor], torch.Tensor], torch.compile(function))  # pyright: ignore[reportUnknownMemberType]
        compiled(torch.ones(8, device=device))
    except Exception as error:  # Compilers and drivers raise errors of many types.
        first_line = str(error).strip().partition("\n")[0]
        return f"{type(error).__name__}: {first_line}"
    finally:
        torch.compiler.reset()
    return None

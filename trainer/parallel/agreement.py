"""Makes all ranks compute alike: in device, arithmetic, compilation and version of torch.

Each rank chooses these by its own machine. Gradients of float16 and of bfloat16 must not be added,
because those of float16 are scaled. So the ranks compare their choices once, before they share
anything else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from trainer.launch.exit_codes import FatalError
from trainer.parallel.device import DTYPES, Compute

# Every GPU that can compute in one of these can also compute in those before it.
_LOW_PRECISIONS = ("float16", "bfloat16")


@dataclass(frozen=True)
class Choice:
    """The choices of one rank, in the form in which it tells them to the other ranks."""

    device_type: str
    device_name: str
    dtype: str
    compile: bool
    backend: str
    torch_version: str

    @staticmethod
    def of(compute: Compute) -> Choice:
        """The part of `compute` that all ranks compare."""
        return Choice(
            compute.device.type,
            compute.device_name,
            str(compute.dtype).removeprefix("torch."),
            compute.compile,
            compute.backend,
            str(torch.__version__),
        )

    def to_text(self) -> str:
        """JSON of at most a few hundred characters."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_text(text: str) -> Choice:
        """The inverse of `to_text`."""
        return Choice(**json.loads(text))


def agree(compute: Compute, dtype_setting: str, choices: Sequence[Choice]) -> Compute:
    """Decide what this rank computes with, from the choices of all ranks.

    Args:
        compute: This rank's own choice.
        dtype_setting: The setting train.dtype. The arithmetic may be changed only if it is "auto".
        choices: The choices of all ranks, by rank.

    Raises:
        FatalError: The ranks cannot train together. The text says which rank chose what.
    """
    for what, setting, value in (
        ("versions of torch", "the image", _torch_version),
        ("kinds of device", "train.device", _device_type),
        ("collectives", "train.backend", _backend),
    ):
        if len({value(choice) for choice in choices}) > 1:
            raise FatalError(
                f"the ranks use different {what}: {_by_value(choices, value)}; "
                f"make them the same by {setting}"
            )
    dtypes, reasons = {choice.dtype for choice in choices}, list[str]()
    if len(dtypes) > 1:
        if dtype_setting != "auto" or not dtypes <= set(_LOW_PRECISIONS):
            raise FatalError(
                f"the ranks compute in different arithmetic: {_by_value(choices, _dtype)}; "
                "make it the same by train.dtype"
            )
        chosen = min(dtypes, key=_LOW_PRECISIONS.index)
        reasons.append(f"{chosen} on all ranks, as they differ: {_by_value(choices, _dtype)}")
        compute = dataclasses.replace(compute, dtype=DTYPES[chosen])
    if len({choice.compile for choice in choices}) > 1:
        reasons.append(
            f"compile off on all ranks, as they differ: {_by_value(choices, _compile_text)}"
        )
        compute = dataclasses.replace(compute, compile=False)
    return dataclasses.replace(compute, reasons=(*compute.reasons, *reasons))


def _torch_version(choice: Choice) -> str:
    return choice.torch_version


def _device_type(choice: Choice) -> str:
    return choice.device_type


def _backend(choice: Choice) -> str:
    return choice.backend


def _dtype(choice: Choice) -> str:
    return choice.dtype


def _compile_text(choice: Choice) -> str:
    return "on" if choice.compile else "off"


def _by_value(choices: Sequence[Choice], value: Callable[[Choice], str]) -> str:
    """Return e.g. `float16 on rank(s) 0, 2 (Tesla T4); bfloat16 on rank(s) 1 (NVIDIA A10)`."""
    parts: list[str] = []
    for found in dict.fromkeys(map(value, choices)):
        ranks = [rank for rank, choice in enumerate(choices) if value(choice) == found]
        names = dict.fromkeys(choices[rank].device_name for rank in ranks)
        parts.append(f"{found} on rank(s) {', '.join(map(str, ranks))} ({', '.join(names)})")
    return "; ".join(parts)

"""Finds the part of a parameter that is on this rank, if the ranks share it out by rows."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def local_rows(parameter: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the rows of a parameter that are on this rank, and the number of the first of them.

    A parameter that is not shared out is returned whole. Writing to the rows changes the parameter.
    """
    to_local: Callable[[], torch.Tensor] | None = getattr(parameter, "to_local", None)
    if to_local is None:
        return parameter.detach(), 0
    from torch.distributed.tensor._utils import (  # No public function does this; torch is pinned.
        compute_local_shape_and_global_offset,
    )

    shared: Any = parameter
    _, offset = compute_local_shape_and_global_offset(
        shared.shape, shared.device_mesh, shared.placements
    )
    return to_local().detach(), int(offset[0])

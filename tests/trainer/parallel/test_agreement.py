"""All ranks compare what they compute with before they share anything."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from trainer.launch.exit_codes import FatalError
from trainer.parallel.agreement import Choice, agree
from trainer.parallel.device import Compute

T4 = Choice("cuda", "Tesla T4", "float16", False, "nccl", "2.7.1")
A10 = Choice("cuda", "NVIDIA A10", "bfloat16", True, "nccl", "2.7.1")


def compute(choice: Choice) -> Compute:
    """Return this choice in the form in which a rank uses it."""
    dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}[choice.dtype]
    return Compute(
        torch.device("cuda:0"), choice.device_name, dtype, choice.compile, choice.backend, ()
    )


def test_a_t4_and_an_a10_compute_alike() -> None:
    """Ranks with different GPUs agree on the arithmetic and compilation that all can do. Otherwise
    DDP would add scaled gradients in float16 to unscaled ones in bfloat16.
    """
    agreed = [agree(compute(own), "auto", [T4, A10, A10]) for own in (T4, A10)]
    assert [one.dtype for one in agreed] == [torch.float16] * 2
    assert [one.compile for one in agreed] == [False] * 2
    assert agreed[1].reasons == (
        "float16 on all ranks, as they differ: float16 on rank(s) 0 (Tesla T4); "
        "bfloat16 on rank(s) 1, 2 (NVIDIA A10)",
        "compile off on all ranks, as they differ: off on rank(s) 0 (Tesla T4); "
        "on on rank(s) 1, 2 (NVIDIA A10)",
    )


def test_equal_choices_stay_as_they_are() -> None:
    assert agree(compute(A10), "auto", [A10, A10]) == compute(A10)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            {"torch_version": "2.8.0"},
            "different versions of torch: 2.7.1 on rank(s) 0 ",
        ),
        (
            {"device_type": "cpu", "device_name": "CPU"},
            "different kinds of device: cuda on",
        ),
        ({"backend": "gloo"}, "different collectives: nccl on rank(s) 0 (NVIDIA A10); gloo on"),
        ({"dtype": "float32"}, "different arithmetic: bfloat16 on rank(s) 0"),
    ],
)
def test_ranks_that_cannot_train_together_are_named(other: dict[str, str], words: str) -> None:
    """Ranks with different versions of torch, devices, collectives or arithmetic are refused, with
    the ranks of each.
    """
    with pytest.raises(FatalError) as caught:
        agree(compute(A10), "auto", [A10, dataclasses.replace(A10, **other)])
    assert words in str(caught.value)


def test_an_arithmetic_that_was_set_is_not_changed() -> None:
    """An arithmetic that the user has set is not changed by the agreement, and ranks that cannot do
    it are refused.
    """
    with pytest.raises(FatalError, match="different arithmetic"):
        agree(compute(A10), "bfloat16", [A10, T4])


def test_a_choice_survives_the_way() -> None:
    """A choice is the same after it was sent as text."""
    assert Choice.from_text(A10.to_text()) == A10

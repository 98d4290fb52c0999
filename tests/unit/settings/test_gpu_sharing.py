"""Time slices and MIG: what a GPU can be cut into, and which runs can use the parts."""

from pathlib import Path
from typing import Any

import pytest

from infra.settings.gpu_sharing import Sharing, sharing_problems
from tests.unit.settings.reading import read, refusal
from tests.unit.stacks import files_of_this_machine

SHARES: list[dict[str, Any]] = [
    {"gpuTimeSlices": 4},
    {"migProfile": "1g.10gb", "gpuModel": "H100-80GB"},
]
WORLDS: list[dict[str, Any]] = [
    {"gpusPerPod": 2},
    {"topology": "multi-pod", "gpusPerPod": 1, "pods": 2},
]


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_two_nccl_ranks_never_share_a_gpu(shares: dict[str, Any], world: dict[str, Any]) -> None:
    assert read(world)
    assert "two nccl ranks cannot share one" in refusal({**shares, **world})
    assert read({**shares, "gpusPerPod": 1})


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("stack", ["dev", "sandbox"], ids=["own", "existing"])
def test_sharing_without_the_operator_is_refused(
    shares: dict[str, Any], stack: str, tmp_path: Path
) -> None:
    """Nobody would share them. On an existing cluster `auto` installs no operator; the setting was
    ignored without a word."""
    one_rank = {"accelerator": "gpu", "gpus": 1, "gpusPerPod": 1, "processesPerPod": 1}
    one_rank |= files_of_this_machine(stack, tmp_path)
    operator = {"gpuOperator": "false"} if stack == "dev" else {}
    said = refusal({**one_rank, **operator, **shares}, stack=stack)
    key, value = next(iter(shares.items()))
    assert f"{key}: {value!r} cannot be used: it is the GPU Operator that shares the GPUs" in said
    assert "Set gpuOperator: true, or " in said
    assert read({**one_rank, "gpuOperator": "true", **shares}, stack=stack)


def test_slices_and_mig_exclude_each_other() -> None:
    problems = sharing_problems(Sharing(2, "1g.10gb"), "H100-80GB")
    assert [problem.key for problem in problems] == ["gpuTimeSlices"]


def test_each_model_has_its_own_profiles() -> None:
    (problem,) = sharing_problems(Sharing(mig_profile="1g.5gb"), "A10")
    assert (problem.key, problem.reason) == ("migProfile", "the A10 (gpuModel) has no MIG")
    assert sharing_problems(Sharing(mig_profile="1g.5gb"), "A100-40GB") == []
    (problem,) = sharing_problems(Sharing(mig_profile="1g.5gb"), "A100-80GB")
    assert problem.hint.startswith("Set one of 1g.10gb")

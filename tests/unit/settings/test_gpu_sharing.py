"""Time slices and MIG: into which parts a GPU can be divided, and which runs can use these
parts.
"""

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
    """A run with two ranks is refused if the platform divides its GPUs, because two nccl ranks
    cannot share one GPU.
    """
    assert read(world)
    assert "two nccl ranks cannot share one" in refusal({**shares, **world})
    assert read({**shares, "gpusPerPod": 1})


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("stack", ["dev", "sandbox"], ids=["own", "existing"])
def test_sharing_without_the_operator_is_refused(
    shares: dict[str, Any], stack: str, tmp_path: Path
) -> None:
    """Divided GPUs are refused without the GPU Operator, which divides them. On an existing cluster
    `auto` installs no operator, so the setting would be ignored without a word.
    """
    one_rank = {"accelerator": "gpu", "gpus": 1, "gpusPerPod": 1, "processesPerPod": 1}
    one_rank |= files_of_this_machine(stack, tmp_path)
    operator = {"gpuOperator": "false"} if stack == "dev" else {}
    said = refusal({**one_rank, **operator, **shares}, stack=stack)
    key, value = next(iter(shares.items()))
    assert f"{key}: {value!r} cannot be used: it is the GPU Operator that shares the GPUs" in said
    assert "Set gpuOperator: true, or " in said
    assert read({**one_rank, "gpuOperator": "true", **shares}, stack=stack)


def test_slices_and_mig_exclude_each_other() -> None:
    """Time slices and MIG together are one problem, which names `gpuTimeSlices`."""
    problems = sharing_problems(Sharing(2, "1g.10gb"), "H100-80GB")
    assert [problem.key for problem in problems] == ["gpuTimeSlices"]


def test_each_model_has_its_own_profiles() -> None:
    """A MIG profile is refused if the GPU's model does not have it, with those that it has."""
    (problem,) = sharing_problems(Sharing(mig_profile="1g.5gb"), "A10")
    assert (problem.key, problem.reason) == ("migProfile", "the A10 (gpuModel) has no MIG")
    assert sharing_problems(Sharing(mig_profile="1g.5gb"), "A100-40GB") == []
    (problem,) = sharing_problems(Sharing(mig_profile="1g.5gb"), "A100-80GB")
    assert problem.hint.startswith("Set one of 1g.10gb")

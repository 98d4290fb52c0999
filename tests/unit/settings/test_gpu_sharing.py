"""Time slices and MIG: what a GPU can be cut into, and which runs can use the parts."""

from typing import Any

import pytest

from infra.settings.gpu_sharing import Sharing, sharing_problems
from tests.unit.settings.reading import read, refusal

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


def test_slices_and_mig_exclude_each_other() -> None:
    problems = sharing_problems(Sharing(2, "1g.10gb"), "H100-80GB")
    assert [problem.key for problem in problems] == ["gpuTimeSlices"]


def test_each_model_has_its_own_profiles() -> None:
    (problem,) = sharing_problems(Sharing(mig_profile="1g.5gb"), "A10")
    assert (problem.key, problem.reason) == ("migProfile", "the A10 (gpuModel) has no MIG")
    assert sharing_problems(Sharing(mig_profile="1g.5gb"), "A100-40GB") == []
    (problem,) = sharing_problems(Sharing(mig_profile="1g.5gb"), "A100-80GB")
    assert problem.hint.startswith("Set one of 1g.10gb")

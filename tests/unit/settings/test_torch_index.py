"""The builds of torch: the requirements, the settings, the doctor and the documentation name the
same ones.
"""

import re

import pytest

from cli.doctor.gpu_checks import OLDEST_DRIVER
from infra.settings.torch_index import CPU_BUILD, CUDA_BUILDS, TORCH, cuda_version, refuse_index
from tests.unit.settings.reading import platform, refusal
from tests.unit.stacks import PROJECT, PROJECT_FILE

INDEX = "https://download.pytorch.org/whl/"


def test_the_table_is_of_the_release_that_the_image_gets() -> None:
    assert f"torch=={TORCH}\n" in (PROJECT / "trainer" / "requirements.txt").read_text()


@pytest.mark.parametrize("build", CUDA_BUILDS)
def test_each_build_is_taken_and_its_cuda_known_to_the_doctor(build: str) -> None:
    for address in (INDEX + build, f"https://mirror.example:8443/whl/{build}/"):
        plan = platform({"torchIndexUrl": address}).image.plan
        assert plan.torch_index_url == address
        assert cuda_version(address) == CUDA_BUILDS[build]
    assert int(CUDA_BUILDS[build].split(".")[0]) in OLDEST_DRIVER


def test_the_default_runs_on_the_a10_nodes_driver() -> None:
    assert cuda_version(PROJECT_FILE["config"]["torchIndexUrl"]["default"]) == "11.8"


@pytest.mark.parametrize(
    ("address", "accelerator"),
    [("cu121", "gpu"), ("cu130", "gpu"), ("cu130", "cpu"), ("rocm6.3", "gpu"), ("cpu", "gpu")],
)
def test_a_build_that_would_silently_be_another_one_is_refused(
    address: str, accelerator: str
) -> None:
    """A build that the pinned torch does not have, or that does not fit the accelerator, is refused
    with those that it has. Otherwise another build would be installed silently.
    """
    assert refuse_index(INDEX + address, accelerator == "gpu")
    changes = {"torchIndexUrl": INDEX + address, "accelerator": accelerator}
    text = refusal(changes)
    assert re.search(rf"torchIndexUrl: '{INDEX}{address}' .*cu118.*cu128", text), text


@pytest.mark.parametrize("address", ["", INDEX + CPU_BUILD, "https://mirror.example/simple"])
def test_indexes_without_cuda_or_of_unknown_builds_are_taken_on_the_cpu(address: str) -> None:
    assert refuse_index(address, on_gpu=False) is None


def test_documentation_lists_just_these_builds() -> None:
    for name in ("docs/image.md", "docs/settings.md"):
        text = (PROJECT / name).read_text()
        listed = set(re.findall(r"/(cu\d+|cpu)(?=[`, (;])", text))
        assert listed == {*CUDA_BUILDS, CPU_BUILD}, name

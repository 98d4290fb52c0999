"""Settings that the GPUs which `gpuModel` names cannot do are refused before `up` installs them."""

from typing import Any

import pytest

from infra.settings.gpu_names import known_model
from tests.unit.settings.reading import platform, read, refusal

INDEX = "https://download.pytorch.org/whl/"
BFLOAT16 = {"run": {"train": {"dtype": "bfloat16"}}}
PROGRAM = {"command": ["python", "train.py"]}
OWN_IMAGE = {**PROGRAM, "image": "nvcr.io/nvidia/pytorch:25.01-py3"}


@pytest.mark.parametrize("model", ["T4", "V100"])
def test_bfloat16_on_an_old_model_is_refused(model: str) -> None:
    """The training would end at its start on such a GPU, after everything has been installed."""
    said = refusal({"gpuModel": model, **BFLOAT16})
    assert said.count("  - ") == 1
    assert (
        f"  - run.train.dtype: 'bfloat16' cannot be used: it needs compute capability 8.0, and the "
        f"{model} (gpuModel) has less. Set auto, float32 or float16, or the right gpuModel."
    ) in said


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("t4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "NVIDIA A10G"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("H100", "H100"),
        ("NVIDIA GB200", "GB200"),
        ("", ""),
    ],
)
def test_a_model_is_known_by_its_name_of_nvidia_smi(written: str, model: str) -> None:
    """What `nvidia-smi` calls a GPU, and small letters, name the model of the tables. Otherwise
    nothing would be checked for it, without a word.
    """
    assert known_model(written) == model


def test_rules_hold_for_the_name_of_nvidia_smi() -> None:
    """The rules about bfloat16, torch and MIG find the model by the name of `nvidia-smi`, too."""
    assert "the T4 (gpuModel) has less" in refusal({"gpuModel": "Tesla T4", **BFLOAT16})
    assert "no code for the B200" in refusal({"gpuModel": "NVIDIA B200"})
    one_rank = {"gpuModel": "NVIDIA H100 80GB HBM3", "gpusPerPod": 1, "migProfile": "1g.10gb"}
    assert platform(one_rank).gpu_operator


@pytest.mark.parametrize("index", [INDEX + "cu118", INDEX + "cu126", ""])
@pytest.mark.parametrize("run", [{}, {"program": PROGRAM}])
def test_a_torch_without_blackwell_is_refused(index: str, run: dict[str, Any]) -> None:
    """torch would find no kernels for the GPU, in disttrain's trainer and in a program that uses
    its image.
    """
    said = refusal({"gpuModel": "B200", "torchIndexUrl": index, **run})
    assert said.count("  - ") == 1
    assert (
        f"  - torchIndexUrl: '{index}' cannot be used: its torch has no code for the B200" in said
    )
    assert "Set https://download.pytorch.org/whl/cu128, or the right gpuModel." in said


@pytest.mark.parametrize(
    "changes",
    [
        {"gpuModel": "A10", **BFLOAT16},
        {"gpuModel": "T4"},
        {"gpuModel": "T4", "run": {"train": {"dtype": "float16"}}},
        {"gpuModel": "B200", "torchIndexUrl": INDEX + "cu128"},
        {"gpuModel": "B200", "torchIndexUrl": "https://mirror.example/simple"},
        {"gpuModel": "B200", "program": OWN_IMAGE},
        {"gpuModel": "B200", "topology": "none"},
        {"gpuModel": "B200", "accelerator": "cpu", "torchIndexUrl": INDEX + "cpu", "gpusPerPod": 1},
        {"gpuModel": "some model of tomorrow", **BFLOAT16},
    ],
)
def test_what_the_model_can_do_is_accepted(changes: dict[str, Any]) -> None:
    """The image's torch does not matter where no run of this stack uses it on a GPU."""
    assert read(changes).platform
    assert platform(changes).devices

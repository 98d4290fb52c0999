"""Which device, arithmetic and collectives a rank chooses, and the peak speed of GPUs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainer.config import TrainConfig
from trainer.launch import worker
from trainer.launch.exit_codes import FatalError
from trainer.metrics.peak_flops import peak_flops
from trainer.parallel import device
from trainer.parallel.device import Compute, choose_compute
from trainer.parallel.world import World, duplicates


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a stand-in machine as `torch.cuda` describes it, whose values a test may change."""
    machine: dict[str, Any] = {"count": 1, "capability": (8, 6), "name": "NVIDIA A10"}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: machine["count"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda d: machine["capability"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda d: machine["name"])
    monkeypatch.setattr(torch.cuda, "set_device", lambda d: None)
    monkeypatch.setattr(device, "trial_compile", lambda d: None)
    return machine


def test_without_a_gpu_everything_falls_back_to_the_cpu_and_says_so(gpu: dict[str, Any]) -> None:
    gpu["count"] = 0
    compute = choose_compute(TrainConfig(), 1)
    assert (compute.device.type, compute.dtype, compute.backend) == ("cpu", torch.float32, "gloo")
    assert not compute.compile
    assert any("no GPU is visible" in reason for reason in compute.reasons)


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)],
)
def test_the_arithmetic_follows_the_compute_capability(
    gpu: dict[str, Any], capability: tuple[int, int], dtype: torch.dtype
) -> None:
    gpu["capability"] = capability
    compute = choose_compute(TrainConfig(), 0)
    assert (compute.dtype, compute.backend) == (dtype, "nccl")


def test_a_pod_with_one_gpu_uses_number_0_and_others_the_local_rank(gpu: dict[str, Any]) -> None:
    """A rank uses the only visible GPU, or the one with its local rank. It is refused if there is
    none for it.
    """
    assert choose_compute(TrainConfig(), 2).device.index == 0
    gpu["count"] = 3
    assert choose_compute(TrainConfig(), 2).device.index == 2
    with pytest.raises(FatalError, match=r"local rank 3 has no GPU: 3 are visible\. Start at most"):
        choose_compute(TrainConfig(), 3)


def test_compilation_is_off_with_the_reason_where_it_cannot_work(
    gpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilation is off, with the reason, without a C compiler, after a failed trial or on an old
    GPU. With `train.compile` set to on, a failed trial is an error.
    """
    monkeypatch.setattr(device.shutil, "which", lambda name: None)
    compute = choose_compute(TrainConfig(), 0)
    assert not compute.compile
    assert "compile off (Triton needs a C compiler and there is none)" in compute.reasons
    monkeypatch.setattr(device.shutil, "which", lambda name: "/usr/bin/cc")
    monkeypatch.setattr(device, "trial_compile", lambda device: "CompilerError: no libcuda.so")
    compute = choose_compute(TrainConfig(), 0)
    assert not compute.compile
    assert "compile off (a trial failed: CompilerError: no libcuda.so)" in compute.reasons
    with pytest.raises(FatalError, match=r"'on' cannot be used: CompilerError: no libcuda"):
        choose_compute(TrainConfig(compile="on"), 0)
    monkeypatch.setattr(device, "trial_compile", lambda device: None)
    assert choose_compute(TrainConfig(), 0).compile
    assert not choose_compute(TrainConfig(compile="off"), 0).compile
    gpu["capability"] = (6, 1)
    assert not choose_compute(TrainConfig(), 0).compile


@pytest.mark.parametrize(
    ("settings", "count", "words"),
    [
        ({"device": "cuda"}, 0, "train.device: 'cuda' cannot be used: no GPU"),
        ({"backend": "nccl"}, 0, "train.backend: 'nccl' cannot be used: it needs a GPU"),
        ({"dtype": "float16"}, 0, "train.dtype: 'float16' cannot be used: it needs a GPU"),
        ({"dtype": "bfloat16"}, 1, "train.dtype: 'bfloat16' cannot be used: it needs compute"),
    ],
)
def test_a_setting_that_the_machine_cannot_meet_is_refused(
    gpu: dict[str, Any], settings: dict[str, Any], count: int, words: str
) -> None:
    gpu.update(count=count, capability=(7, 5))
    with pytest.raises(FatalError, match=words):
        choose_compute(replace(TrainConfig(), **settings), 0)


def test_ranks_on_the_same_gpu_are_found() -> None:
    assert duplicates(["GPU-a", "GPU-b", "GPU-a"]) == ["GPU-a"]
    assert duplicates(["GPU-a", "GPU-b"]) == []


@pytest.mark.parametrize(("uuids", "shared"), [(["a", "b"], ""), (["a", "a"], "a")])
def test_ranks_on_one_gpu_are_refused_before_nccl_is(
    monkeypatch: pytest.MonkeyPatch, uuids: list[str], shared: str
) -> None:
    """When the ranks connect, two of them with one GPU end the run for good, with the reason. NCCL
    would refuse them later, and each restart would fail again. The group and the GPU are stand-ins.
    """
    here = Compute(torch.device("cuda", 0), "A10", torch.bfloat16, False, "nccl", ())
    monkeypatch.setattr("trainer.parallel.world.await_store", lambda *_: None)
    monkeypatch.setattr("torch.distributed.init_process_group", lambda *_, **__: None)
    uuid = SimpleNamespace(uuid=uuids[0])
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: uuid)

    def gather(_: World, text: str) -> list[str]:
        return uuids if text == uuids[0] else [text, text]

    monkeypatch.setattr(World, "gather_objects", gather)
    if not shared:
        assert World(size=2).connect(here, TrainConfig()) == here
        return
    words = f"several ranks use the same GPU {shared} .* whole GPU of its own"
    with pytest.raises(FatalError, match=words):
        World(size=2).connect(here, TrainConfig())


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA A10", 125),
        ("NVIDIA A10G", 70),
        ("Tesla T4", 65),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA A30", 165),
        ("NVIDIA A40", 149.7),
        ("NVIDIA RTX A6000", 154.8),
        ("NVIDIA GeForce RTX 3090", 71),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 5090", 209.5),
        ("NVIDIA GeForce RTX 3080", None),
        ("NVIDIA RTX 6000 Ada Generation", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA A10-24Q", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA A1000 Laptop GPU", None),
        ("CPU", None),
    ],
)
def test_the_peak_is_that_of_the_data_sheet_or_unknown(name: str, tflops: float | None) -> None:
    """The peak speed of a GPU is that of its data sheet, and unknown for similar names and
    slices.
    """
    assert peak_flops(name, torch.bfloat16) == (tflops and tflops * 1e12)
    assert peak_flops(name, torch.float32) is None


@pytest.mark.parametrize(("kind", "precision"), [("cuda", "high"), ("cpu", "highest")])
def test_float32_takes_tf32_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, kind: str, precision: str
) -> None:
    """Products of float32 use TF32 on a GPU, which is up to eight times as fast on Ampere and
    later. `tests/gpu` checks what a real GPU then computes.
    """
    compute = device.Compute(torch.device(kind), "a GPU", torch.float32, False, "gloo", ())
    monkeypatch.setattr(worker, "choose_compute", lambda train, rank: compute)
    before = torch.get_float32_matmul_precision()
    try:
        worker.set_up_torch(TrainConfig(), World())
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)

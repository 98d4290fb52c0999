"""The checks of `tests/gpu`, run on a CPU as far as possible, and what they say without a GPU.

A check that is wrong by itself is found here, and not on a GPU machine that is lent for an hour.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.gpu import arithmetic, compiled, launched, ranks, saving
from tests.gpu.__main__ import NOT_RUN, all_checks
from tests.gpu.place import NotHereError, Place
from tests.gpu.time_line import time_line

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    return Place("cpu", tmp_path)


@pytest.mark.parametrize(
    "check",
    [
        arithmetic.one_rank_trains_alike_in_all_kinds,
        arithmetic.bfloat16_trains_in_all_kinds,
        arithmetic.float16_skips_what_overflows,
        arithmetic.float32_uses_tf32,
        saving.a_copy_under_load_is_whole,
        ranks.a_laps_time_is_the_devices_own,
        launched.a_killed_rank_goes_on_bitwise,
        launched.a_stop_saves_and_frees_the_gpu,
        launched.two_ranks_share_a_gpu_by_gloo,
    ],
    ids=lambda check: check.__name__,
)
def test_check_passes_on_a_cpu(place: Place, check: Callable[[Place], str]) -> None:
    """The check passes on a CPU, with gloo in place of NCCL."""
    assert check(place)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_compiled_model_is_one_shape(
    place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiled model with recomputed blocks trains as an eager one, with micro-batches of one
    shape.

    The graphs are made as always, but without inductor's C++, which takes minutes for 12 layers
    here. `tests/trainer/parallel/test_wrap.py` compiles 2 layers with it.
    """
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    assert compiled.compiled_trains_as_eager(place, kind, recomputes=True)


def test_checks_of_a_gpus_own_parts_do_not_pass_on_a_cpu(place: Place) -> None:
    """Checks of parts that only a GPU has do not pass on a CPU, but say that they cannot run."""
    for check in (
        saving.a_copy_runs_beside_the_kernels,
        saving.a_save_touches_no_other_gpu,
        ranks.a_waiting_spare_touches_no_gpu,
        launched.two_ranks_on_one_gpu_are_refused,
    ):
        with pytest.raises(NotHereError):
            check(place)


@pytest.mark.parametrize("program", ["tests.gpu", "bench.gpu"])
@pytest.mark.parametrize("torch_is_there", [True, False])
def test_without_a_gpu_they_say_so_and_count_as_not_run(
    tmp_path: Path, program: str, torch_is_there: bool
) -> None:
    """Without a GPU or without torch the programs say so in one line and end with the code for not
    run, so that nobody takes that for a success.
    """
    if not torch_is_there:
        (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    done = subprocess.run(
        [sys.executable, "-m", program],
        cwd=CHECKOUT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == NOT_RUN, done.stderr
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "was not run: " in line
    assert ("sees no GPU" if torch_is_there else "no torch here") in line


def test_every_check_has_a_name_of_its_own() -> None:
    checks = all_checks()
    parts = (arithmetic.CHECKS, compiled.CHECKS, saving.CHECKS, ranks.CHECKS, launched.CHECKS)
    assert len(checks) == sum(map(len, parts)) > 10


def event(
    kind: str, name: str, begin: float, length: float, stream: int, size: int = 0, call: int = 0
) -> object:
    """Return an event of a profiler's trace, with times in microseconds."""
    arguments = {"device": 0, "stream": stream, "bytes": size, "correlation": call}
    return {"cat": kind, "name": name, "ts": begin, "dur": length, "args": arguments}


def test_time_line_counts_what_ran_beside_the_copies() -> None:
    """How long kernels ran beside copies is counted right from a profiler's trace."""
    copies = [
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 100, 50, 9, 10**6),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 150, 50, 9, 10**6),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 10, 1, 7, 4),  # a loss
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 5, 1, 7, 10**6),  # first weights
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 120, 5, 7, 10**6),  # a batch
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 130, 5, 7, 10**5),  # another one
    ]
    kernels = [
        event("kernel", "gemm", 90, 30, 7, call=1),
        event("kernel", "gemm", 190, 100, 7, call=2),
    ]
    calls = [
        event("cuda_runtime", "cudaLaunchKernel", 80, 3, 0, call=1),
        event("cuda_driver", "cuLaunchKernelEx", 130, 3, 0, call=2),
    ]
    beside = time_line(json.dumps({"traceEvents": [*copies, *kernels, *calls, {"ph": "M"}]}))
    assert beside.first_kernel_launched_after_seconds == pytest.approx(30e-6)
    assert (beside.copied_bytes, beside.shares_a_stream) == (2 * 10**6, False)
    assert beside.pageable_bytes == 10**5
    assert beside.copy_seconds == pytest.approx(100e-6)
    assert beside.overlap_seconds == pytest.approx(30e-6)
    assert (beside.kernel_count, beside.first_kernel_after_seconds) == (2, pytest.approx(90e-6))
    kernels = [event("kernel", "gemm", 210, 30, 9)]
    after = time_line(json.dumps({"traceEvents": [*copies, *kernels]}))
    assert (after.overlap_seconds, after.shares_a_stream) == (0, True)


def test_contexts_of_a_cpu_run_are_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check fails if a run on the CPU makes a context on a GPU, and passes otherwise. A
    stand-in takes the part of a machine with two GPUs.
    """
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(Place, "train", lambda *values: [])
    touched = {1}
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", touched.__contains__, raising=False)
    with pytest.raises(AssertionError, match=r"contexts on GPUs \[1\]"):
        saving.a_cpu_run_makes_no_context(place)
    touched.clear()
    assert saving.a_cpu_run_makes_no_context(place)

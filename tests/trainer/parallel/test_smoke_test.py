"""The check before the first step, with real ranks over gloo and with faults that it has to
find.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.lab import Lab, free_port, rank_environment
from trainer.config import TrainConfig
from trainer.launch.exit_codes import ExitCode, FatalError
from trainer.parallel import smoke_test
from trainer.parallel.device import Compute, choose_compute
from trainer.parallel.world import World

CPU = Compute(torch.device("cpu"), "CPU", torch.float32, False, "gloo", ())


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield a single rank with a process group, as on a machine with one GPU."""
    for name, value in rank_environment(0, 1, free_port()).items():
        monkeypatch.setenv(name, value)
    world = World(grouped=True)
    train = TrainConfig(device="cpu")
    world.connect(choose_compute(train, 0), train)
    yield world
    torch.distributed.destroy_process_group()


def test_three_ranks_measure_every_size(lab: Lab) -> None:
    """The check writes the rates of all sizes into the run's folder and rank 0's log, and training
    goes on after it.
    """
    run = lab.config(train__max_steps=2, train__warmup_steps=0, train__smoke_test=True)
    assert lab.ended(lab.fork_ranks(run, 3)) == [ExitCode.DONE] * 3, lab.logs()
    seen = json.loads((run.run_dir / "smoke-test.json").read_text())
    assert (seen["world_size"], seen["backend"], seen["device"]) == (3, "gloo", "CPU")
    rates = seen["all_reduce"]
    assert [rate["size_bytes"] for rate in rates] == list(smoke_test.SIZES_BYTES["cpu"])
    for rate in rates:
        bus = 2 * 2 / 3 * rate["size_bytes"] / rate["seconds"]  # 2 (n - 1) / n
        assert rate["bus_bytes_per_second"] == pytest.approx(bus)
    line = r"^smoke test: all-reduce over 3 ranks by gloo: 4 KiB in \S+ ms \(\S+ GB/s\), "
    assert len(re.findall(line, lab.rank_log(run, 0).read_text(), re.M)) == 1
    assert "smoke test" not in lab.rank_log(run, 1).read_text()


def test_nothing_is_measured_without_the_option(lab: Lab) -> None:
    """Without `train.smoke_test` nothing is measured."""
    run = lab.config(train__max_steps=2, train__warmup_steps=0)
    lab.train(run, 2)
    assert not (run.run_dir / "smoke-test.json").exists()


def test_one_rank_checks_its_device(tmp_path: Path) -> None:
    """A single rank checks its device, and measures no rates."""
    lines: list[str] = []
    assert smoke_test.smoke_test(World(), CPU, tmp_path / "run", lines.append) == ()
    assert lines == ["smoke test: CPU computes rightly; there is one rank"]
    assert json.loads((tmp_path / "run" / "smoke-test.json").read_text())["all_reduce"] == []


def test_wrong_sums_stop_the_run(
    one_rank: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong sum over the ranks stops the run. A link or device that flips bits would otherwise
    spoil the training without an error.
    """
    right = torch.distributed.all_reduce

    def flips_a_bit(tensor: torch.Tensor, *rest: Any) -> None:
        right(tensor, *rest)
        if tensor.numel() > 1000:
            tensor[-1] += 2

    monkeypatch.setattr(torch.distributed, "all_reduce", flips_a_bit)
    message = "rank 0 got a wrong sum over all ranks: 1 of 1024 numbers of an all-reduce are not 1$"
    with pytest.raises(FatalError, match=message):
        smoke_test.smoke_test(one_rank, CPU, tmp_path, print)
    assert not (tmp_path / "smoke-test.json").exists()


def test_device_that_cannot_compute_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device whose first kernel fails is named with the error. A wheel of torch without code for
    the GPU shows that only when the first kernel is started.
    """

    def no_kernel(*_: Any, **__: Any) -> torch.Tensor:
        raise RuntimeError("CUDA error: no kernel image is available\nCompile with ...")

    monkeypatch.setattr(torch, "ones", no_kernel)
    message = "rank 0 computes wrongly: CUDA error: no kernel image is available$"
    with pytest.raises(FatalError, match=message):
        smoke_test.smoke_test(World(), CPU, tmp_path, print)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_arithmetic_holds_the_product(dtype: torch.dtype) -> None:
    """The check of a healthy device passes in every arithmetic."""
    compute = Compute(torch.device("cpu"), "CPU", dtype, False, "gloo", ())
    assert smoke_test.device_problem(compute) == ""

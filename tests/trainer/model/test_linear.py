"""Products of matrices by oneDNN, which is faster than the default on some CPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from trainer.model import linear as module
from trainer.model.allocator import keep_freed_memory


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use oneDNN also on CPUs where the default is as fast."""
    monkeypatch.setattr(module, "onednn_is_faster", lambda: True)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (12, 64, 128)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_and_gradients_are_those_of_the_default(
    shape: tuple[int, ...], has_bias: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, *shape, requires_grad=True)
    weight = torch.randn(7, shape[-1], requires_grad=True)
    inputs = (x, weight, torch.randn(7, requires_grad=True)) if has_bias else (x, weight)
    ours, theirs = module.linear(*inputs), F.linear(*inputs)
    torch.testing.assert_close(ours, theirs)
    grad = torch.randn_like(ours)
    for mine, default in zip(
        torch.autograd.grad(ours, inputs, grad),
        torch.autograd.grad(theirs, inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(mine, default, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("onednn")
def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    module.linear(x, weight).pow(2).sum().backward()
    step = torch.zeros_like(weight)
    step[1, 2] = 1e-2
    with torch.no_grad():
        high, low = (module.linear(x, weight + s).pow(2).sum() for s in (step, -step))
    assert weight.grad is not None
    assert weight.grad[1, 2].item() == pytest.approx((high - low).item() / 2e-2, rel=1e-3)


@pytest.mark.usefixtures("onednn")
def test_the_same_sums_come_out_bit_by_bit_every_time() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(768, 128), torch.randn(512, 128, requires_grad=True)
    results = [torch.autograd.grad(module.linear(x, weight).sum(), weight)[0] for _ in range(5)]
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize(
    ("content", "intel"),
    [("vendor_id : GenuineIntel\n", True), ("vendor_id : AuthenticAMD\n", False), (None, True)],
)
def test_intels_cpus_and_unknown_ones_keep_the_default(
    tmp_path: Path, content: str | None, intel: bool
) -> None:
    """Intel's CPUs, and those that cannot be told, count as Intel's, which keep the default."""
    path = tmp_path / "cpuinfo"
    if content is not None:
        path.write_text(content)
    assert module._is_intel(path) is intel  # pyright: ignore[reportPrivateUsage]


def test_memory_is_kept_where_there_is_glibc() -> None:
    import platform

    assert keep_freed_memory() is (platform.libc_ver()[0] == "glibc")

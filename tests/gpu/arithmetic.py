"""Checks of arithmetic and collectives: NCCL of one rank, bfloat16, float16, TF32."""

from __future__ import annotations

import functools
from unittest import mock

import torch
import torch.distributed as dist

from tests.gpu.place import NotHereError, Place, assert_close, losses

KINDS = ("alone", "ddp", "fsdp")


def one_rank_trains_alike_in_all_kinds(place: Place) -> str:
    """With NCCL and one rank, DDP and FSDP2 give the losses of a process without a group."""
    found: dict[str, list[float]] = {}
    for kind in KINDS:
        parallel = "ddp" if kind == "alone" else kind
        run = place.config(kind, train__parallel=parallel, train__dtype="float32")
        with place.group_of_one(kind, run) as world:
            if kind != "alone" and place.device == "cuda":
                assert "cuda:nccl" in dist.get_backend_config()
            found[kind] = losses(place.train(run, world))
    worst = max(assert_close(found["alone"], found[kind], 1e-4, kind) for kind in ("ddp", "fsdp"))
    assert found["alone"][-1] < found["alone"][0] - 0.3, "it does not learn"
    return f"losses of ddp and fsdp within {worst:.0e} of one process without a group"


def bfloat16_trains_in_all_kinds(place: Place) -> str:
    """With bfloat16 the loss falls, and the first loss is float32's within the rounding of
    bfloat16.
    """
    exact = losses(place.train(place.config("float32", train__dtype="float32")))
    worst = 0.0
    for kind in KINDS:
        parallel = "ddp" if kind == "alone" else kind
        run = place.config(kind, train__parallel=parallel, train__dtype="bfloat16")
        with place.group_of_one(kind, run) as world:
            found = losses(place.train(run, world))
        worst = max(worst, assert_close(exact[:1], found[:1], 1e-2, f"{kind}, first loss"))
        assert found[-1] < found[0] - 0.3, f"{kind} does not learn: {found}"
    return f"first loss within {worst:.0e} of float32's"


def float16_skips_what_overflows(place: Place) -> str:
    """If the gradient scale begins far too high, the overflowing updates are skipped.

    The skipped updates change no weight, and then the run trains. All kinds are checked, so also
    sharded gradients.
    """
    skipped: list[str] = []
    scaler = functools.partial(torch.amp.grad_scaler.GradScaler, init_scale=2.0**40)
    for kind in KINDS:
        run = place.config(
            kind,
            train__parallel="ddp" if kind == "alone" else kind,
            train__dtype="float16",
            train__max_steps=50,
            train__global_batch_size=3,
        )
        with place.group_of_one(kind, run) as world, mock.patch("torch.amp.GradScaler", scaler):
            records = place.train(run, world)
        assert records[0]["grad_norm"] is None, f"{kind}: the first update did not overflow"
        count = records[-1]["skipped_updates"]
        assert 1 < count < 45, f"{kind}: {count} of 50 updates were skipped"
        first_good = next(r for r in records if r["grad_norm"] is not None)
        assert first_good["step"] == count + 1, f"{kind}: skipped {count}, went on at {first_good}"
        assert losses(records)[-1] < losses(records)[int(count)], f"{kind} does not learn"
        skipped.append(f"{kind} {count}")
    return f"skipped updates: {', '.join(skipped)} of 50"


def float32_uses_tf32(place: Place) -> str:
    """Matrix products of float32 use the tensor cores of a GPU, with TF32's rounding error."""
    run = place.config("tf32", train__dtype="float32")
    place.compute(run)
    device = torch.device(place.device)
    torch.manual_seed(0)
    a, b = (torch.randn(512, 512, dtype=torch.float64, device=device) for _ in range(2))
    exact = a @ b
    error = float(((a.float() @ b.float()).double() - exact).abs().max() / exact.abs().max())
    if place.device == "cpu":
        assert error < 1e-5, "the CPU has no TF32 and must keep float32's precision"
        return f"on the CPU float32 stays float32: error {error:.0e}"
    if torch.cuda.get_device_capability() < (8, 0):
        raise NotHereError("TF32 needs compute capability 8.0")
    assert 1e-5 < error < 1e-2, f"an error of {error:.0e} is not TF32's"
    return f"largest error {error:.0e} of the largest value, TF32's"


CHECKS = (
    one_rank_trains_alike_in_all_kinds,
    bfloat16_trains_in_all_kinds,
    float16_skips_what_overflows,
    float32_uses_tf32,
)

"""DDP, FSDP2 and activation checkpointing give the same run, and their checkpoints fit each
other.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.in_depth import in_depth
from tests.trainer.lab import Lab, assert_bitwise_equal, losses, records, saved_tensors
from trainer.config import ModelConfig, RunConfig, TrainConfig
from trainer.model.gpt import GPT, compile_blocks
from trainer.parallel.device import Compute
from trainer.parallel.world import World
from trainer.parallel.wrap import Parallel

UNEVEN = {"train__global_batch_size": 10, "eval__interval": 10, "eval__batch_size": 64}


def assert_same_losses(one: RunConfig, other: RunConfig, tolerance: float = 1e-5) -> None:
    """Assert that two runs have the same steps, and nearly the same losses and norms of
    gradients.
    """
    assert [step for step, _, _ in losses(one)] == [step for step, _, _ in losses(other)]
    for left, right in zip(records(one), records(other), strict=True):
        assert right["loss"] == pytest.approx(left["loss"], rel=tolerance)
        assert right["grad_norm"] == pytest.approx(left["grad_norm"], rel=1e-4)
        if left["val_loss"] is not None:
            assert right["val_loss"] == pytest.approx(left["val_loss"], rel=tolerance)


@pytest.mark.parametrize("world_size", [2, 3])
def test_shards_train_as_copies_do(lab: Lab, world_size: int) -> None:
    """A run in shards (FSDP2) has the losses and weights of a run with copies (DDP). Gloo adds
    gradients up where FSDP2 asks for their average; the factor that corrects that is measured, for
    any backend and version of torch.
    """
    # Softmax cancels the keys' bias: its gradient is rounding noise, which Adam scales up. So
    # these models have no biases.
    copies = lab.config(run_name="ddp", model__bias=False, **UNEVEN)
    shards = lab.config(run_name="fsdp", model__bias=False, train__parallel="fsdp", **UNEVEN)
    lab.train(copies, world_size)
    lab.train(shards, world_size)
    assert "fsdp: each rank has a shard" in lab.rank_log(shards, 0).read_text()
    assert_same_losses(copies, shards)
    left, right = saved_tensors(copies), saved_tensors(shards)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.shape == right[name].shape
        assert (tensor - right[name]).abs().max() < 1e-4, name


def test_gradients_may_be_reduced_in_each_micro_step(lab: Lab) -> None:
    """With `train.reduce_each_micro_step`, a run in shards has the losses of a run without it, and
    a resumed one continues bit for bit.
    """
    shape = {"model__bias": False, "train__parallel": "fsdp", **UNEVEN}
    once = lab.config(run_name="once", **shape)
    shape["train__reduce_each_micro_step"] = True
    each = lab.config(run_name="each", **shape)
    half = lab.config(run_name="half", train__max_steps=10, train__decay_steps=20, **shape)
    rest = lab.config(run_name="half", **shape)
    lab.train_side_by_side((once, 2), (each, 2), (half, 2))
    lab.train(rest, 2)
    assert_same_losses(once, each)
    assert_bitwise_equal(each, rest)


def test_a_checkpoint_continues_in_the_other_way_and_on_another_number_of_ranks(
    lab: Lab,
) -> None:
    """A run that changes between DDP and FSDP2 and between numbers of ranks has the losses of an
    undisturbed run with one rank.
    """
    whole = lab.config(run_name="whole", train__max_steps=24, **UNEVEN)
    lab.train(whole, 1)
    ways = [(6, 3, "fsdp"), (12, 2, "ddp"), (18, 1, "fsdp"), (24, 3, "fsdp")]
    part = whole
    for steps, world_size, parallel in ways:
        part = lab.config(
            run_name="parts",
            train__max_steps=steps,
            train__decay_steps=24,
            train__parallel=parallel,
            **UNEVEN,
        )
        lab.train(part, world_size)
    log = lab.rank_log(part, 0).read_text()
    for (steps, before, _), (_, after, _) in pairwise(ways):
        assert f"continuing after step {steps} from" in log
        assert f"{before} rank(s) saved it, {after} continue" in log
    for left, right in zip(losses(whole), losses(part), strict=True):
        assert right == pytest.approx(left, rel=1e-4)
        assert right[1] == pytest.approx(left[1], rel=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shards_train_with_padded_vocabulary(lab: Lab, dtype: str) -> None:
    """A run in shards with a padded vocabulary has the losses of a run with copies. What takes the
    padding out of the loss must fit the weights of the head, of which a rank has only a shard.
    """
    many = lab.root / "many.txt"
    many.write_text("".join(chr(0x4E00 + i % 1100) for i in range(30000)))
    shape = {
        "dataset": {"name": "many", "file": str(many), "tokenizer": "char"},
        "train__dtype": dtype,
        "train__max_steps": 6,
    }
    copies = lab.config(run_name="ddp", **shape)
    shards = lab.config(run_name="fsdp", train__parallel="fsdp", **shape)
    lab.train(copies, 2)
    lab.train(shards, 2)
    left, right = ([record["loss"] for record in records(run)] for run in (copies, shards))
    assert left[0] == pytest.approx(math.log(1100), rel=0.1)
    assert right == pytest.approx(left, rel=1e-5 if dtype == "float32" else 1e-2)


@pytest.mark.slow
def test_a_resumed_run_in_shards_is_bitwise_the_uninterrupted_one(lab: Lab) -> None:
    shape = {"model__dropout": 0.2, "train__parallel": "fsdp", "train__decay_steps": 16, **UNEVEN}
    whole = lab.config(run_name="whole", train__max_steps=16, **shape)
    lab.train(whole, 3)
    for steps in (7, 16):
        part = lab.config(
            run_name="parts", train__max_steps=steps, **{**shape, "eval__interval": 0}
        )
        lab.train(part, 3)
    part = lab.config(run_name="parts", train__max_steps=16, **shape)
    assert_bitwise_equal(whole, part)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_activation_checkpointing_changes_no_bit(lab: Lab, parallel: str) -> None:
    shape = {"model__dropout": 0.2, "train__parallel": parallel, "train__max_steps": 8}
    kept = lab.config(run_name="kept", **shape)
    again = lab.config(run_name="again", train__activation_checkpointing=True, **shape)
    for run in (kept, again):
        lab.train(run, 2)
    assert "activation checkpointing on" in lab.rank_log(again, 0).read_text()
    assert_bitwise_equal(kept, again)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_bfloat16_trains_in_both_ways(lab: Lab, parallel: str) -> None:
    """In bfloat16 the loss falls with DDP and with FSDP2, and checkpoints are in float32."""
    run = lab.config(train__parallel=parallel, train__dtype="bfloat16")
    lab.train(run, 2)
    first, *_, last = records(run)
    assert last["loss"] < first["loss"] - 0.3
    assert {str(tensor.dtype) for tensor in saved_tensors(run).values()} == {"torch.float32"}


def test_bfloat16_is_the_same_arithmetic_in_both_ways(lab: Lab) -> None:
    """In bfloat16 FSDP2 computes as DDP does, with sums of the blocks in float32."""
    runs = [
        lab.config(
            run_name=parallel,
            train__parallel=parallel,
            train__dtype="bfloat16",
            train__max_steps=6,
            model__bias=False,
            model__n_layer=6,
        )
        for parallel in ("ddp", "fsdp")
    ]
    lab.train_side_by_side(*((run, 2) for run in runs))
    copies, shards = (records(run)[0] for run in runs)
    assert shards["loss"] == pytest.approx(copies["loss"], rel=2e-4)
    assert shards["grad_norm"] == pytest.approx(copies["grad_norm"], rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [in_depth("ddp"), "fsdp"])
def test_recomputed_blocks_compile_on_several_ranks(lab: Lab, parallel: str) -> None:
    """Compiled code and activation checkpointing work together on several ranks, and give the
    losses of a run without them. With DDP torch would otherwise raise NotImplementedError at the
    first step.
    """
    shape = {
        "train__max_steps": 6,
        "train__parallel": parallel,
        # one rank may compile for long when the other has finished
        "train__timeout_seconds": 600,
        "train__start_timeout_seconds": 600,
    }
    eager = lab.config(run_name="eager", **shape)
    compiled = lab.config(
        run_name="compiled",
        train__compile="on",
        train__activation_checkpointing=True,
        **shape,
    )
    lab.train(eager, 2)
    assert lab.ended(lab.fork_ranks(compiled, 2), 900) == [0, 0], lab.logs()
    assert_same_losses(eager, compiled)


@pytest.mark.parametrize("by_block", [False, True])
def test_compiled_code_has_fixed_sizes(monkeypatch: pytest.MonkeyPatch, by_block: bool) -> None:
    """Training and evaluation each get code for their own batch, also where an evaluation comes
    first, as after a stop in one. Code for batches of any size is slower and adds in another order.
    """
    sizes, graphs = list[object](), list[object]()

    def backend(graph: Any, inputs: list[object]) -> Any:
        graphs.append(graph)
        sizes.extend(each for each in inputs if not isinstance(each, torch.Tensor))
        return graph.forward

    compiler = functools.partial(torch.compile, backend=backend)
    monkeypatch.setattr(torch, "compile", compiler)
    torch.compiler.reset()
    model = GPT(ModelConfig(n_layer=2, n_head=2, n_embd=32, block_size=16, dropout=0.0), 65)
    compute = Compute(torch.device("cpu"), "CPU", torch.float32, not by_block, "gloo", ())
    parallel = Parallel(model, TrainConfig(), compute, World())
    if by_block:
        compile_blocks(model)
    evaluated, trained = (torch.zeros(rows, 16, dtype=torch.int64) for rows in (8, 3))
    model.eval()
    with torch.no_grad():
        parallel.evaluated(evaluated, evaluated)
    model.train()
    parallel.loss(trained, trained, reduces=True).backward()
    torch.compiler.reset()
    assert len(graphs) == 2
    assert sizes == []

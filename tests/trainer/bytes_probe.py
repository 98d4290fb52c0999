"""A rank that counts the bytes that its collectives move for one update, for test_plan.py.

Usage: python -m tests.trainer.bytes_probe RANK STORE_FILE ddp|fsdp DTYPE MICRO_STEPS REDUCTIONS
"""

# pyright: reportUnknownMemberType=false, reportPrivateImportUsage=false
import json
import os
import sys
from contextlib import nullcontext
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.trainer.plan_model import MODEL, VOCAB_SIZE
from trainer.config import TrainConfig
from trainer.model.gpt import GPT
from trainer.parallel.device import Compute
from trainer.parallel.world import World
from trainer.parallel.wrap import Parallel

RANKS = 2


def main() -> None:
    rank, store, parallel, dtype_name, micro_steps, reductions = sys.argv[1:]
    dtype = getattr(torch, dtype_name)
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, RANKS), rank=int(rank), world_size=RANKS
    )
    torch.manual_seed(1)
    moved = {"gathered": 0, "reduced": 0}

    def count(name: str, kind: str) -> None:
        real = getattr(dist, name)

        def counting(*values: Any, **more: Any) -> Any:
            output = more.get("output_tensor", more.get("output", values[0] if values else None))
            source = more.get("input_tensor", more.get("input", values[-1] if values else None))
            whole = cast(torch.Tensor, output if kind == "gathered" else source)
            moved[kind] += whole.numel() * whole.element_size()
            return real(*values, **more)

        setattr(dist, name, counting)

    compute = Compute(torch.device("cpu"), "cpu", dtype, False, "gloo", ())
    model = GPT(MODEL, VOCAB_SIZE)
    each = int(reductions) > 1
    train = TrainConfig(parallel=parallel, dtype=dtype_name, reduce_each_micro_step=each)
    made = Parallel(model, train, compute, World(int(rank), RANKS))
    if parallel == "ddp":

        def reduce(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            buffer = bucket.buffer()
            moved["reduced"] += buffer.numel() * buffer.element_size()
            work = cast(Any, dist.all_reduce(buffer, async_op=True))
            return work.get_future().then(lambda done: done.value()[0])

        module = cast(DistributedDataParallel, made._module)  # pyright: ignore[reportPrivateUsage]
        module.register_comm_hook(None, reduce)
    else:
        count("all_gather_into_tensor", "gathered")
        count("reduce_scatter_tensor", "reduced")
    tokens = torch.randint(VOCAB_SIZE, (1, MODEL.block_size))
    low = torch.autocast("cpu", dtype) if dtype != torch.float32 else nullcontext()
    for step in range(int(micro_steps)):
        with low:
            loss = made.loss(tokens, tokens, step == int(micro_steps) - 1)
        loss.backward()
    print(json.dumps(moved), flush=True)
    os._exit(0)  # as trainer/launch/worker.py ends: gloo's own end may crash or wait for ever


if __name__ == "__main__":
    main()

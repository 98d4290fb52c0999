"""One rank that saves or loads random tensors of a large model, as training does.

    python -m bench.checkpoint_io save|load DIRECTORY    with RANK, WORLD_SIZE, MASTER_* set

It prints one line of JSON: the seconds, the bytes of its shard, and its peak memory meanwhile.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from trainer.checkpoint import layout, store
from trainer.checkpoint.run_lock import RunLock
from trainer.checkpoint.save import Save
from trainer.checkpoint.tensors import give_memory, state_tensors
from trainer.config import RunConfig
from trainer.model.gpt import GPT, make_optimizer
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.parallel.wrap import Parallel
from trainer.run_folder import CHECKPOINTS_DIR

_VOCABULARY = 50257
_STEP = 1


def main() -> None:
    """Save or load one checkpoint, together with all other ranks."""
    what, directory = sys.argv[1:]
    world = World.from_environment()
    torch.set_num_threads(1)
    config = RunConfig.from_mapping(
        {
            "data_root": directory,
            "run_name": "io",
            "dataset": {"file": "none"},
            # 0.54 B parameters.
            "model": {"n_layer": 24, "n_head": 20, "n_embd": 1280, "block_size": 1024},
            "train": {"device": "cpu", "parallel": "fsdp", "timeout_seconds": 600},
        }
    )
    compute = world.connect(choose_compute(config.train, world.local_rank), config.train)
    with torch.device("meta"):
        model = GPT(config.model, _VOCABULARY)
    Parallel(model, config.train, compute, world)
    optimizer = make_optimizer(model, config.train)
    give_memory(optimizer)
    tensors = state_tensors(model, optimizer)
    here = [
        getattr(tensor, "to_local", lambda tensor=tensor: tensor)() for tensor in tensors.values()
    ]
    for tensor in here:  # pages that were never written would not count as memory
        tensor.detach().random_() if what == "save" else tensor.detach().zero_()
    world.barrier()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is measured from here on
    begin = time.perf_counter()
    if what == "save":
        _save(config, world, compute.device, tensors)
    else:
        _load(config, world, tensors)
    world.barrier()
    result = {
        "seconds": time.perf_counter() - begin,
        "shard_bytes": sum(tensor.numel() * tensor.element_size() for tensor in here),
        "peak_bytes": _peak_bytes(),
    }
    print(json.dumps(result), flush=True)
    dist.barrier()
    os._exit(0)


def _save(
    config: RunConfig, world: World, device: torch.device, tensors: dict[str, torch.Tensor]
) -> None:
    lock = RunLock(config.run_dir)
    if world.is_main:
        lock.acquire()
    save = Save(config, world, device, "bench", lock, lambda line: None)
    save.begin(_STEP, tensors, {"step": _STEP}, "", is_last=True)
    save.wait()


def _load(config: RunConfig, world: World, tensors: dict[str, torch.Tensor]) -> None:
    """Load as a start does: every rank verifies its share of the files, then reads its shards."""
    root = config.run_dir / CHECKPOINTS_DIR
    directory = store.directory_of(root, _STEP)
    mine = set(store.files_of(root, _STEP)[world.rank :: world.size])
    assert store.problem(directory, mine.__contains__) is None
    world.barrier()
    layout.read_into(directory, store.load_layout(root, _STEP), tensors)


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


if __name__ == "__main__":
    main()

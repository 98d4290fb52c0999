"""Trains a small classifier with FSDP2; saves sharded checkpoints and resumes from the newest one.

The program also runs without disttrain: `torchrun --nproc-per-node 2 train.py --steps 40`.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    """Train until the last step, from the newest checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")  # reads MASTER_ADDR, RANK and so on
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    folder = Path(os.environ.get("DISTTRAIN_CHECKPOINT_DIR", "checkpoints"))

    torch.manual_seed(7)  # the same first weights in every rank
    mesh = init_device_mesh(device.type, (ranks,))
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = 0
    # `.metadata` is written last, so a folder that has it contains a complete checkpoint.
    whole = sorted(folder.glob("step-*/.metadata"))
    if whole:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        dcp.load(state, checkpoint_id=whole[-1].parent)
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        step = int(whole[-1].parent.name.removeprefix("step-"))
        print(f"rank {rank}: continuing after step {step}")

    while step < options.steps:
        draw = torch.Generator().manual_seed(step * ranks + rank)  # a different batch in each step
        inputs = torch.randn(32, 16, generator=draw)
        labels = (inputs[:, :8].sum(1) > inputs[:, 8:].sum(1)).long()
        loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            print(f"step {step}/{options.steps} loss {loss.item():.4f}")
        if step % options.save_every == 0 or step == options.steps:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments}
            dcp.save(state, checkpoint_id=folder / f"step-{step:08d}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

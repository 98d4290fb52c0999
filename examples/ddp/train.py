"""Trains a small classifier with DistributedDataParallel, and resumes from its own checkpoint.

The program also runs without disttrain: `torchrun --nproc-per-node 2 train.py --steps 40`.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    """Train until the last step, from the newest checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")  # reads MASTER_ADDR, RANK and so on
    rank, device = dist.get_rank(), torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    folder = Path(os.environ.get("DISTTRAIN_CHECKPOINT_DIR", "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "newest.pt"

    torch.manual_seed(7)  # the same data and first weights in every rank
    points = torch.randn(4096, 16)
    data = TensorDataset(points, (points[:, :8].sum(1) > points[:, 8:].sum(1)).long())
    sampler = DistributedSampler(data, seed=7)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
        print(f"rank {rank}: continuing after step {step}")

    while step < options.steps:
        sampler.set_epoch(step // len(loader))  # a different order in each epoch
        done_in_epoch = step % len(loader)
        for number, (inputs, labels) in enumerate(loader):
            if number < done_in_epoch or step == options.steps:
                continue
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0:
                print(f"step {step}/{options.steps} loss {loss.item():.4f}")
            if rank == 0 and (step % options.save_every == 0 or step == options.steps):
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step}, checkpoint.with_suffix(".tmp"))
                checkpoint.with_suffix(".tmp").replace(checkpoint)  # so it is never half written
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

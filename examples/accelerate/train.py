"""Trains a small classifier with Hugging Face Accelerate, which saves and loads its checkpoints.

The program also runs without disttrain: `accelerate launch train.py --steps 40`.
"""

import argparse
import os
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Train until the last step, from the newest checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    options = parser.parse_args()
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available()
    )  # reads RANK, MASTER_ADDR and so on
    folder = Path(os.environ.get("DISTTRAIN_CHECKPOINT_DIR", "checkpoints"))

    set_seed(7)  # the same data and first weights in every rank
    points = torch.randn(4096, 16)
    data = TensorDataset(points, (points[:, :8].sum(1) > points[:, 8:].sum(1)).long())
    network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    model, optimizer, loader = accelerator.prepare(
        network,
        torch.optim.AdamW(network.parameters(), lr=1e-2),
        DataLoader(data, batch_size=32, shuffle=True),
    )
    step = 0
    # A folder gets this name only when its checkpoint is complete.
    whole = sorted(folder.glob("step-????????"))
    if whole:
        accelerator.load_state(str(whole[-1]))
        step = int(whole[-1].name.removeprefix("step-"))
        print(f"rank {accelerator.process_index}: continuing after step {step}")

    while step < options.steps:
        loader.set_epoch(step // len(loader))  # a different order in each epoch
        rest = accelerator.skip_first_batches(loader, step % len(loader))
        for inputs, labels in rest:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            accelerator.print(f"step {step}/{options.steps} loss {loss.item():.4f}")
            if step % options.save_every == 0 or step == options.steps:
                unfinished = folder / f"unfinished-{step:08d}"
                accelerator.save_state(str(unfinished))
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:
                    unfinished.replace(folder / f"step-{step:08d}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

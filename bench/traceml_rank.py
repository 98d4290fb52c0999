"""One rank under traceml-ai, of which one is made slow: `bench.traceml_beside` starts it.

    traceml run ... bench/traceml_rank.py --args CONFIG KIND RANK SECONDS STEPS

The loop is the one that traceml's own examples have: a torch DataLoader, DistributedDataParallel
and `trace_step` around each step. The model, its batch and what is slow are those of our own rank
(bench/injected_rank.py).
"""

# traceml is in no virtualenv of the checkout, so its types are unknown.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import traceml_ai as traceml
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from bench.injected_rank import USUAL_SECONDS
from bench.torchft_rank import VOCABULARY
from trainer.config import load_config
from trainer.model.gpt import GPT, make_optimizer


class Drawn(Dataset[torch.Tensor]):
    """Random batches; `seconds`: how long each takes."""

    def __init__(self, batches: int, shape: tuple[int, int], seconds: float) -> None:
        self._batches, self._shape, self._seconds = batches, shape, seconds

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, _: int) -> torch.Tensor:
        time.sleep(self._seconds)
        return torch.randint(VOCABULARY, self._shape)


class Slow(torch.nn.Module):
    """The model, with a sleep in its forward pass."""

    def __init__(self, model: torch.nn.Module, seconds: float) -> None:
        super().__init__()
        self._model, self._seconds = model, seconds

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss."""
        time.sleep(self._seconds)
        return self._model(tokens, targets) / targets.numel()


def rank(config_file: str, kind: str, slow: int, seconds: float, steps: int) -> None:
    """Train for so many steps; on the rank `slow`, `kind` takes so many seconds more."""
    number, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo")
    traceml.init(mode="auto")
    torch.manual_seed(0)
    extra = {kind: seconds} if number == slow else {}

    def sleep(_: torch.Tensor) -> None:
        time.sleep(seconds)

    config = load_config(config_file, [])
    model = Slow(GPT(config.model, VOCABULARY), USUAL_SECONDS + extra.get("slow forward", 0))
    parallel = DistributedDataParallel(model)
    optimizer = make_optimizer(model, config.train)  # pyright: ignore[reportArgumentType]
    shape = (config.train.global_batch_size // ranks, config.model.block_size + 1)
    for ids in DataLoader(Drawn(steps, shape, extra.get("slow data", 0)), batch_size=None):
        with traceml.trace_step(parallel.module):
            optimizer.zero_grad()
            loss = parallel(ids[:, :-1], ids[:, 1:])
            if "slow backward" in extra:
                loss.register_hook(sleep)
            loss.backward()
            optimizer.step()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    rank(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))

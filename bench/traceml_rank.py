"""One rank under traceml-ai in a run where one rank is slow: `bench.traceml_beside` starts it.

    traceml run ... bench/traceml_rank.py --args CONFIG KIND RANK SECONDS STEPS FILE GROUP

The loop is that of traceml's own examples: a torch DataLoader, DistributedDataParallel, and
`trace_step` around each step. The model, its batch and the slow thing are those of our own rank
(bench/injected_rank.py). Rank 0 makes the file FILE when training has begun. The slow rank, RANK,
joins the control group GROUP, if that is not `-`.
"""

# traceml is in no virtualenv of the checkout, so its types are unknown.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import traceml_ai as traceml
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from bench.injected_rank import BEGUN_STEPS, usual_seconds
from bench.torchft_rank import VOCABULARY
from tests.trainer.accidents import Garbage
from trainer.config import load_config
from trainer.model.gpt import GPT, make_optimizer


class Drawn(Dataset[torch.Tensor]):
    """A data set of random batches; each takes `seconds` seconds."""

    def __init__(self, batches: int, shape: tuple[int, int], seconds: float) -> None:
        self._batches, self._shape, self._seconds = batches, shape, seconds

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, _: int) -> torch.Tensor:
        time.sleep(self._seconds)
        return torch.randint(VOCABULARY, self._shape)


class Slow(torch.nn.Module):
    """The model, whose forward pass also sleeps for `seconds` and calls `more`."""

    def __init__(self, model: torch.nn.Module, seconds: float, more: Callable[[], None]) -> None:
        super().__init__()
        self._model, self._seconds, self._more = model, seconds, more

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss of the (B, T) tokens, a scalar."""
        time.sleep(self._seconds)
        self._more()
        return self._model(tokens, targets) / targets.numel()


def rank(
    config_file: str, kind: str, slow: int, seconds: float, steps: int, begun: str, group: str
) -> None:
    """Train for `steps` steps. On the rank `slow`, `kind` takes `seconds` more in each step.

    `begun` and `group` are FILE and GROUP in the module's docstring.
    """
    number, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if number == slow and group != "-":
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    torch.distributed.init_process_group("gloo")
    traceml.init(mode="auto")
    torch.manual_seed(0)
    extra = {kind: seconds} if number == slow else {}

    def sleep(_: torch.Tensor) -> None:
        time.sleep(seconds)

    config = load_config(config_file, [])
    model = Slow(
        GPT(config.model, VOCABULARY),
        usual_seconds(kind) + extra.get("slow forward", 0),
        Garbage().search if "garbage collection" in extra else nothing,
    )
    parallel = DistributedDataParallel(model)
    optimizer = make_optimizer(model, config.train)  # pyright: ignore[reportArgumentType]
    shape = (config.train.global_batch_size // ranks, config.model.block_size + 1)
    batches = DataLoader(Drawn(steps, shape, extra.get("slow data", 0)), batch_size=None)
    for step, ids in enumerate(batches):
        if number == 0 and step == BEGUN_STEPS:
            Path(begun).touch()
        with traceml.trace_step(parallel.module):
            optimizer.zero_grad()
            loss = parallel(ids[:, :-1], ids[:, 1:])
            if "slow backward" in extra:
                loss.register_hook(sleep)
            loss.backward()
            optimizer.step()
    torch.distributed.destroy_process_group()


def nothing() -> None:
    """Do nothing; for a forward pass in which nothing more happens."""


if __name__ == "__main__":
    config_file, kind, slow, seconds, steps, begun, group = sys.argv[1:]
    rank(config_file, kind, int(slow), float(seconds), int(steps), begun, group)

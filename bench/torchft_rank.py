"""One rank under torchft, or its lighthouse, in the virtualenv of `bench.torchft_beside`.

`python -m bench.torchft_rank lighthouse JOIN_MS HEARTBEAT_MS` prints its address and keeps running.
`python -m bench.torchft_rank rank NUMBER CONFIG STEPS` trains for ever. It writes a line for each
committed step into the file STEPS.
"""

# torchft is in no virtualenv of the checkout, so its types are unknown.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportPrivateImportUsage=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore

from trainer.config import load_config
from trainer.model.gpt import GPT, make_optimizer

REPLICAS = 3
LEAST = 2  # the smallest number of replicas that may go on alone
VOCABULARY = 65  # characters in the data set of our own rows


def lighthouse(join_ms: int, heartbeat_ms: int) -> None:
    """Run torchft's lighthouse until the process is killed."""
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=LEAST,
        join_timeout_ms=join_ms,
        quorum_tick_ms=100,
        heartbeat_timeout_ms=heartbeat_ms,
    )
    print(server.address(), flush=True)
    signal.pause()


def rank(number: int, config_file: str, steps: Path) -> None:
    """Train a configuration's model on random batches, with torchft's manager and optimizer.

    One call of the manager averages the gradients, and not torchft's own DistributedDataParallel.
    In 0.2.0 with torch 2.7.1, an assertion in its hook ends the remaining ranks when gloo reports
    that a rank is gone.
    """
    from torchft import Manager, Optimizer, ProcessGroupGloo

    class Gloo(ProcessGroupGloo):
        """A gloo group without a note for torch's flight recorder; torch 2.7 cannot keep it."""

        def _create_pg(self, *args: Any) -> Any:
            self._global_ranks = None
            return super()._create_pg(*args)

    config = load_config(config_file, [])
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(0)
    model = GPT(config.model, VOCABULARY)
    inner = make_optimizer(model, config.train)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=Gloo(),
        min_replica_size=LEAST,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        replica_id=f"bench_{number}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        hostname="127.0.0.1",
    )
    optimizer = Optimizer(manager, inner)
    batch = config.train.global_batch_size // REPLICAS
    with steps.open("a") as file:
        while True:
            ids = torch.randint(VOCABULARY, (batch, config.model.block_size + 1))
            optimizer.zero_grad()
            before = manager.current_step()
            (model(ids[:, :-1], ids[:, 1:]) / ids[:, 1:].numel()).backward()
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            flat = torch.cat([each.flatten() for each in gradients])
            manager.allreduce(flat).wait()
            parts = flat.split([each.numel() for each in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))
            optimizer.step()
            if manager.current_step() > before:
                told = {
                    "step": manager.current_step(),
                    "ranks": manager.num_participants(),
                    "pid": os.getpid(),
                    "unix_time": time.time(),
                }
                file.write(json.dumps(told) + "\n")
                file.flush()


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "lighthouse":
        lighthouse(int(words[0]), int(words[1]))
    else:
        rank(int(words[0]), words[1], Path(words[2]))

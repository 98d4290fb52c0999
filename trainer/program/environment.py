"""Makes the environment of a program's processes, as torchrun would set or read it.

This module does no input or output.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from trainer.config import RunConfig
from trainer.launch.lifeline import LIFELINE_VARIABLE
from trainer.launch.membership import Round
from trainer.launch.node import Node

# Variables of a single rank. A program that starts its ranks itself sets them for its ranks, and
# must not find them set.
_OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")


def process_environments(
    config: RunConfig, node: Node, here: Round, environments: Sequence[Mapping[str, str]]
) -> list[dict[str, str]]:
    """Return the variables of each process that is started on this node.

    Args:
        config: The configuration of the run.
        node: This node.
        here: The round that begins.
        environments: The variables that ranks of our own trainer would get, by local rank.
    """
    place = here.nodes.index(node.rank)
    common = {
        "NODE_RANK": str(place),
        "DISTTRAIN_RUN_DIR": str(config.run_dir),
        "DISTTRAIN_CHECKPOINT_DIR": os.fspath(config.program_dir),
    }
    if config.program.per == "rank":
        more = {
            **common,
            "GROUP_RANK": str(place),
            "GROUP_WORLD_SIZE": str(len(here.nodes)),
            "ROLE_NAME": "default",
            "TORCHELASTIC_RESTART_COUNT": str(here.number - 1),
            "TORCHELASTIC_MAX_RESTARTS": str(config.train.max_restarts),
            # This variable tells torch, and so Lightning, that the ranks are started already.
            "TORCHELASTIC_RUN_ID": config.run_name,
        }
        return [_fit(environment, {**more, **_role(environment)}) for environment in environments]
    more = {
        **common,
        "PET_NNODES": str(len(here.nodes)),
        "PET_NODE_RANK": str(place),
        "PET_NPROC_PER_NODE": str(node.local_ranks),
        "PET_MASTER_ADDR": here.master_address,
        "PET_MASTER_PORT": str(here.master_port),
    }
    first = {name: text for name, text in environments[0].items() if name not in _OF_A_RANK}
    return [_fit(first, more)]


def process_names(config: RunConfig, node: Node, here: Round) -> list[str]:
    """Return the names of this node's processes for messages."""
    if config.program.per == "rank":
        return [f"rank {here.first_rank + local}" for local in range(node.local_ranks)]
    return [f"the program of node {node.rank}"]


def _role(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a rank's role. All ranks have the same role, as with torchrun."""
    return {"ROLE_RANK": environment["RANK"], "ROLE_WORLD_SIZE": environment["WORLD_SIZE"]}


def _fit(environment: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with `more`, and without the lifeline, which only our ranks read.

    Unless the environment says otherwise, Python writes its output without a buffer.
    """
    kept = {name: text for name, text in environment.items() if name != LIFELINE_VARIABLE}
    return {"PYTHONUNBUFFERED": "1", **kept, **more}

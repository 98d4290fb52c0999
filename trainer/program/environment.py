"""The variables of a program's processes, as torchrun would set or read them. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from trainer.config import RunConfig
from trainer.launch.lifeline import LIFELINE_VARIABLE
from trainer.launch.membership import Round
from trainer.launch.node import Node

# Of one rank; a program that starts its ranks itself sets them, and must not find them set.
_OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")


def process_environments(
    config: RunConfig, node: Node, here: Round, environments: Sequence[Mapping[str, str]]
) -> list[dict[str, str]]:
    """The variables of each process that is started on this node.

    Args:
        config: of the run.
        node: this one.
        here: the round that begins.
        environments: by local rank, what our own trainer's ranks would get.
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
            # By this one torch, and so Lightning, knows that the ranks have been started.
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
    """What the processes of this node are called in messages."""
    if config.program.per == "rank":
        return [f"rank {here.first_rank + local}" for local in range(node.local_ranks)]
    return [f"the program of node {node.rank}"]


def _role(environment: Mapping[str, str]) -> dict[str, str]:
    """All ranks have the same role here, as they have by default under torchrun."""
    return {"ROLE_RANK": environment["RANK"], "ROLE_WORLD_SIZE": environment["WORLD_SIZE"]}


def _fit(environment: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """An environment for output line by line, without what only our own trainer's ranks read."""
    kept = {name: text for name, text in environment.items() if name != LIFELINE_VARIABLE}
    return {"PYTHONUNBUFFERED": "1", **kept, **more}

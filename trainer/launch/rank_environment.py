"""The environment variables that a rank is started with."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from trainer.launch.membership import Round
from trainer.launch.node import Node, interface_of
from trainer.parallel.cores import threads_per_rank


def rank_environment(
    in_common: Mapping[str, str], node: Node, here: Round, local_rank: int
) -> dict[str, str]:
    """Return the environment of a rank.

    It adds torch.distributed's variables, the number of threads, and the network interface of gloo
    and NCCL to `in_common`.

    Args:
        in_common: The variables that all ranks of the node have. Its values for threads and
            interfaces are kept.
        node: This node.
        here: The round in which the rank will run.
        local_rank: The rank's number on this node, counted from 0.
    """
    environment = {
        **in_common,
        "RANK": str(here.first_rank + local_rank),
        "WORLD_SIZE": str(here.world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(node.local_ranks),
        "GROUP_RANK": str(node.rank),
        "MASTER_ADDR": here.master_address,
        "MASTER_PORT": str(here.master_port),
    }
    threads = threads_per_rank(node.local_ranks, here.ranks_on_machine)
    environment.setdefault("OMP_NUM_THREADS", str(threads))
    interface = interface_of(here.own_address) if here.own_address else None
    if len(here.nodes) == 1:
        interface = "lo0" if sys.platform == "darwin" else "lo"
    if interface is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)
    if interface is not None and len(here.nodes) > 1:
        environment.setdefault("NCCL_SOCKET_IFNAME", interface)
    return environment

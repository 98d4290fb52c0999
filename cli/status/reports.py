"""Follows the nodes' reports during a snapshot, and limits how long a node's answer is waited for.

The kubelet of a machine that is off never answers, and the user wants to know soon that the machine
is lost. A slow kubelet renews its lease meanwhile, so its answer is waited for.
"""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from cli.status.clocks import clocks_ahead
from cli.status.silence import LEASES, renewals, silent_nodes
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import objects_at
from infra.kube.errors import UnreachableError
from infra.kube.objects import Json, name_of
from infra.kube.pods.silent_machines import has_been_missed

TRY_SECONDS = 3.0
TRIES = 4  # a healthy node renews its lease within this number of tries
SECONDS_OF_LOST = 1.0


class Reports:
    """What the leases of the nodes say, from the beginning of the snapshot on.

    Args:
        api: the cluster. If it does not show the leases, no node counts as silent, and nothing is
            known about the nodes' clocks.
        nodes: the nodes of the cluster, as far as they may be read.
    """

    def __init__(self, api: Api, nodes: Sequence[Json]) -> None:
        self._api, self._nodes = api, nodes
        self._missed = {name_of(node) for node in nodes if has_been_missed(node)}
        self.silent: Mapping[str, float] = {}
        self.clocks_ahead: Mapping[str, float] = {}
        self._first = self._ask()

    def answer_of(self, node: str, ask: Callable[[float | None], str]) -> str:
        """Return the answer of a node to `ask`, with a time limit that depends on its reports.

        Args:
            node: the name of the node.
            ask: asks the node. Its argument is the longest wait in seconds; None for the default.

        Raises:
            UnreachableError: the node does not answer, and has not reported meanwhile.
        """
        if node in self._missed or node in self.silent:
            return ask(SECONDS_OF_LOST)
        for _ in range(TRIES if node in self._first else 0):
            begin = monotonic()
            try:
                return ask(TRY_SECONDS)
            except UnreachableError:
                if monotonic() - begin < TRY_SECONDS:
                    raise  # not a timeout: the failure was reported before the limit
                now = self._ask()
                if node in self.silent:
                    raise
                if now.get(node) != self._first[node]:
                    break
        return ask(None)

    def _ask(self) -> Mapping[str, str]:
        leases = (objects_at(self._api, LEASES) or []) if self._nodes else []
        self.silent = silent_nodes(self._nodes, leases, self._api.now())
        self.clocks_ahead = clocks_ahead(leases)
        return renewals(leases)

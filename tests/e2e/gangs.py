"""Watches which runs have pods at the same time, even while the API server does not answer."""

import threading
from collections import Counter
from typing import Self

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import has_ended, label
from infra.kube.paths import PODS
from infra.labels import WORKLOAD_LABEL
from tests.e2e.lab import NAMESPACE, Lab

PAUSE_SECONDS = 0.2


class Gangs:
    """Notes each set of runs that had living pods at the same time."""

    def __init__(self, lab: Lab) -> None:
        access = Access(kubeconfig_path=str(lab.cluster.kubeconfig))
        self._api = Api(access, patience_seconds=0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen = list[dict[str, int]]()
        """The number of living pods of each workload, noted whenever it changed."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def most_at_once(self) -> int:
        """Return the largest number of runs that had living pods at the same time."""
        return max(len(each) for each in self.seen)

    def _run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            try:
                pods = self._api.list(PODS.format(NAMESPACE), WORKLOAD_LABEL)
            except (ApiError, UnreachableError):
                continue
            living = [pod for pod in pods if not has_ended(pod)]
            now = dict(Counter(label(pod, WORKLOAD_LABEL) for pod in living))
            if not self.seen or self.seen[-1] != now:
                self.seen.append(now)

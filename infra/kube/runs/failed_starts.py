"""Reads in the pods' logs why their ranks are started again and again before the first step.

The pods themselves run, so Kubernetes reports no problem, for example if a Python module is
missing. Only the newest lines of the logs show it.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import Json, container_of, is_running, name_of
from infra.kube.paths import log_path, pod_path
from infra.kube.say import shorten

EVERY_SECONDS = 5.0
LONGEST_SECONDS = 3.0  # a machine that is lost gives no answer, and must not delay the wait longer
LINES = 100
MOST_PODS = 8
LONGEST_WORDS = 120
# Lines of trainer/launch. A test compares these patterns with the output of a real run.
_OURS = re.compile(r"\[node (\d+)\] (.*)")
_LOST = re.compile(r"round \d+ is lost: node (\d+): ")
_STOPPED = re.compile(r"training stopped: (.*; starting again .*)")


@dataclass(frozen=True)
class FailedStart:
    """The newest failed start of the ranks, as the log of one pod reports it.

    Args:
        node: the node rank of this pod, from the prefix `[node N]` of its lines.
        why: which rank ended and how, and when the ranks are started again.
        lost_node: the number of the node whose rank ended; None: the log does not say it.
        last_words: the last line that a rank of this pod wrote before that.
    """

    node: int
    why: str
    lost_node: int | None
    last_words: str


def failed_start(log: str) -> FailedStart | None:
    """The newest failed start in a log; None: the log has none. This function is pure."""
    found, lost_node, last_words = None, None, ""
    for line in log.splitlines():
        ours = _OURS.match(line)
        if not ours:
            last_words = line.strip() or last_words
        elif lost := _LOST.match(ours[2]):
            lost_node = int(lost[1])
        elif stopped := _STOPPED.match(ours[2]):
            found = FailedStart(int(ours[1]), stopped[1], lost_node, last_words)
            lost_node, last_words = None, ""
    return found


class FailedStarts:
    """Reads the logs of running pods, at most once in EVERY_SECONDS."""

    def __init__(
        self, api: Api, namespace: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._namespace, self._clock = api, namespace, clock
        self._asked_at: float | None = None
        self._words = ""

    def words(self, pods: list[Json]) -> str:
        """Why the last start of the ranks failed, with the last line of the rank that ended.

        The text is empty if no start has failed.

        Args:
            pods: the pods of one training that has not made its first step.
        """
        now = self._clock()
        if self._asked_at is None or now - self._asked_at >= EVERY_SECONDS:
            self._asked_at = now
            self._words = self._read(pods)
        return self._words

    def _read(self, pods: list[Json]) -> str:
        running = [pod for pod in pods if is_running(pod)]
        seen: FailedStart | None = None
        for pod in sorted(running, key=name_of)[:MOST_PODS]:
            found = failed_start(self._log(pod))
            seen = seen or found
            if seen is None:  # Every node logs a failed start, so one log without it is enough.
                return ""
            wanted = seen.node if seen.lost_node is None else seen.lost_node
            if found is not None and found.node == wanted and found.last_words:
                words = shorten(found.last_words, LONGEST_WORDS)
                return f"the last start has failed: {seen.why}; before that: {words}"
        return f"the last start has failed: {seen.why}" if seen else ""

    def _log(self, pod: Json) -> str:
        path = log_path(pod_path(self._namespace, name_of(pod)))
        try:
            query = {"container": container_of(pod), "tailLines": str(LINES)}
            return self._api.text(path, query, LONGEST_SECONDS)
        except (ApiError, UnreachableError):  # e.g. no right to read logs; the wait goes on
            return ""

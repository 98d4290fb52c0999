"""Merges the lines from the volume and from the pods: first existing lines, then new ones."""

import time
from collections.abc import Callable, Iterator

from cli.logs.line import Line
from cli.logs.pod_logs import PodLogs
from cli.logs.seam import Seam
from cli.logs.volume import PROGRAM_ENDED, VolumeReader
from cli.logs.volume_program import HISTORY_BEGINS, HISTORY_ENDS, RECENT, WANTED
from cli.pod_facts import has_begun, started_at
from cli.pod_facts import node_of as node_of_pod
from infra.command_line import Say
from infra.kube.objects import Json

# How long a line of the API server waits for its record on the volume: a network file system may
# show a new record some seconds late.
HOLD_SECONDS = 6.0
ORDER_SECONDS = 1.0  # the same without a volume, so that lines of several pods can be sorted
POLL_SECONDS = 2.0
STEP_SECONDS = 0.2
MOST_AT_ONCE = 5000  # how many lines are taken from the volume before the pods get their turn
QUIET_SECONDS = 2.0  # after the end of all pods: the wait for the last records on the volume


class Merged:
    """The merged lines of a run.

    Args:
        pods: the logs of the pods, as the API server has them.
        volume: the logs on the volume; None if they cannot be read.
        warn: prints a sentence for the user.
        is_over: whether no new pod will come after all pods have ended; the default is yes.
    """

    def __init__(
        self,
        pods: PodLogs,
        volume: VolumeReader | None,
        warn: Say,
        is_over: Callable[[], bool] = lambda: True,
    ) -> None:
        self._pods, self._volume, self._warn, self._is_over = pods, volume, warn, is_over
        self._has_told_of_wait = False
        self._seam = Seam(HOLD_SECONDS if volume is not None else ORDER_SECONDS)
        self._newest: dict[int, float] = {}  # the time of each node's last record
        self.found_any = False  # whether there is a pod, or a record on the volume
        self.has_begun = False  # whether a pod may have written something, or there is a record

    @property
    def knows_ranks(self) -> bool:
        """Whether the volume can be read, which alone knows the ranks of the lines."""
        return self._volume is not None

    def history(self, since: float, tail: int = -1) -> Iterator[Line]:
        """Yield the existing lines in the order of time.

        Args:
            since: the time from which lines are wanted, in seconds since the epoch; 0.0 for all.
            tail: how many last lines of each pod are enough if there is no volume; -1 for all.
        """
        for kind, line in self._until(HISTORY_BEGINS):
            if kind == RECENT and line is not None:
                self._seam.seen(line)
                self._newest[line.node] = max(line.at, self._newest.get(line.node, 0.0))
        pods = self._pods.pods()
        self.found_any = bool(pods or self._newest)
        self.has_begun = bool(self._newest) or any(map(has_begun, pods))

        def known(pod: Json) -> float:
            newest = self._newest.get(node_of_pod(pod), 0.0)
            return newest if newest >= started_at(pod) else 0.0

        now = time.monotonic()
        for line in self._pods.there(pods, since, known, -1 if self._volume else tail):
            self._seam.api(line, now)
        for problem in self._pods.problems:
            self._warn(f"not shown: {problem}")
        for kind, line in self._until(HISTORY_ENDS):
            if line is not None and kind == WANTED:
                yield from self._seam.record(line, all_nodes=True)
            elif line is not None:
                self._seam.seen(line)
        if self._volume is None:
            yield from self._seam.rest()
        else:  # an older line has no record, or the record would have come already
            yield from self._seam.before(self._pods.now() - HOLD_SECONDS)

    def rest(self) -> list[Line]:
        """Return the lines that still wait for their records.

        Call this after `history` if nothing is followed.
        """
        return self._seam.rest()

    def follow(self) -> Iterator[list[Line]]:
        """Yield lists of new lines until all pods have ended and no new one will come.

        A list may be empty, so that the caller gets its turn while no lines come.
        """
        looked_at, quiet_since, ended = float("-inf"), time.monotonic(), False
        told = len(self._pods.problems)
        while True:
            found = self._from_volume()
            for line in self._pods.take():
                self._seam.api(line, time.monotonic())
            found += self._seam.due(time.monotonic())
            if found:
                quiet_since = time.monotonic()
            yield found
            if not ended and time.monotonic() - looked_at > POLL_SECONDS:
                pods, looked_at = self._pods.pods(), time.monotonic()
                self.found_any = self.found_any or bool(pods)
                ended = self._pods.follow(pods) and not self._waits_for_a_pod()
                quiet_since = time.monotonic()
            quiet = 0.0 if self._volume is None else QUIET_SECONDS
            if ended and time.monotonic() - quiet_since >= quiet:
                for line in self._pods.take():
                    self._seam.api(line, time.monotonic())
                yield self._seam.rest()
                for problem in self._pods.problems[told:]:
                    self._warn(f"not shown: {problem}")
                return

    def _waits_for_a_pod(self) -> bool:
        """Whether a new pod will come although all pods have ended; the first time, say so.

        Kubernetes waits for some seconds before it replaces a pod that has failed. A run in a queue
        may wait for its first pod for days; the caller says what it waits for.
        """
        if self._is_over():
            return False
        if self.found_any and not self._has_told_of_wait:
            self._has_told_of_wait = True
            self._warn("all pods of the run have ended; the lines of its next pod follow")
        return True

    def _from_volume(self) -> list[Line]:
        if self._volume is None:
            time.sleep(STEP_SECONDS)
            return []
        found: list[Line] = []
        printed = self._volume.next(STEP_SECONDS)
        while printed is not None and len(found) < MOST_AT_ONCE:
            if printed.kind == PROGRAM_ENDED:
                self._lose_volume(printed.reason)
                break
            if printed.line is not None:
                found += self._seam.record(printed.line)
            printed = self._volume.next(0)
        return found

    def _until(self, end: str) -> Iterator[tuple[str, Line | None]]:
        """Yield what the program in the volume's pod sends before a line of the kind `end`."""
        while self._volume is not None:
            printed = self._volume.next(STEP_SECONDS)
            if printed is not None and printed.kind == PROGRAM_ENDED:
                self._lose_volume(printed.reason)
            elif printed is not None and printed.kind == end:
                return
            elif printed is not None:
                yield printed.kind, printed.line

    def _lose_volume(self, reason: str) -> None:
        self._volume = None
        self._warn(
            f"the logs on the volume cannot be read any more ({reason or 'its pod has ended'}): "
            "the lines of living pods follow, without ranks"
        )

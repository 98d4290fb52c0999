"""Reads the logs of a run's pods from the API server, which has them until a pod is deleted."""

import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from cli.logs.line import Line, api_time, parse_api_line
from cli.logs.position import Position
from cli.pod_facts import has_begun, node_of
from cli.stack_outputs import RunPlace
from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import (
    Json,
    container_of,
    has_ended,
    is_running,
    machine_of,
    name_of,
    part,
    parts,
)
from infra.kube.paths import PODS, log_path, pod_path

HEAD_BYTES = 64 << 10
# After so many requests in a row that bring no line of a pod that has ended, its log is given up.
MOST_TRIES = 15
SILENT_SECONDS = 10.0  # a machine that is off ends a request only after half a minute
TOO_MANY = 429  # the server's status if it wants to be asked again later


class PodLogs:
    """The logs of all pods of one run."""

    def __init__(self, api: Api, place: RunPlace) -> None:
        self._api, self._place = api, place
        self.problems: list[str] = []  # which logs could not be read, and why
        self._silent: dict[str, str] = {}  # by the machine: why it has given no answer in time
        self._positions: dict[str, Position] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._cut: set[str] = set()  # uids of pods whose log was not read to its end
        self._tries: Counter[str] = Counter()  # failed requests in a row, by the uid of the pod
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()

    def pods(self) -> list[Json]:
        """Return the pods of the run that exist now."""
        selector = names.training_selector(self._place.owner)
        return self._api.list(PODS.format(self._place.namespace), selector)

    def now(self) -> float:
        """Return the time by the cluster's clock, in seconds since the epoch."""
        return self._api.now().timestamp()

    def there(
        self, pods: list[Json], since: float, known: Callable[[Json], float], tail: int = -1
    ) -> list[Line]:
        """Return what the pods have printed so far, in the order of time.

        If the volume has the lines of a pod, only the pod's first and last lines are read. The
        first lines may have been written before the trainer could write to the volume, and the
        last ones may not be on the volume yet.

        Args:
            pods: the pods.
            since: the time from which lines are wanted, in seconds since the epoch; 0.0 for all.
            known: returns the time of a pod's last line on the volume; 0.0 if there is none.
            tail: how many last lines of each container are enough; -1 for all. With 0, the last
                line is returned too.
        """
        found: list[Line] = []
        for pod in filter(has_begun, pods):
            # One line is read even if none is wanted: `follow` continues after it.
            enough = {"tailLines": str(max(tail, 1))} if tail >= 0 else dict[str, str]()
            first = {"sinceTime": api_time(since)} if since else dict[str, str]()
            last = known(pod)
            queries = [{**first, **enough}]
            if last > since:
                queries = [
                    {**first, "limitBytes": str(HEAD_BYTES)},
                    {"sinceTime": api_time(last), **enough},
                ]
            has_restarted = any(int(each.get("restartCount") or 0) for each in _containers(pod))
            for previous in ("true", "false") if has_restarted else ("false",):
                for query in queries:
                    found += self._read(pod, {**query, "previous": previous})
        return sorted(found, key=lambda line: line.at)

    def _read(self, pod: Json, query: dict[str, str]) -> list[Line]:
        machine, begin = machine_of(pod), time.monotonic()
        if machine in self._silent:
            self._note(pod, self._silent[machine])
            return []
        try:
            text = self._api.text(self._path(pod), {**_whole(pod), **query})
        except (ApiError, UnreachableError) as reason:  # for instance, the node of the pod is lost
            if machine and time.monotonic() - begin > SILENT_SECONDS:
                self._silent[machine] = str(reason)
            if query["previous"] == "false":  # the log of the previous container is often removed
                self._note(pod, str(reason))
            return []
        lines = text.encode().split(b"\n")
        if "limitBytes" in query:
            lines.pop()  # the last line is cut off by the limit
        position = self._position(pod)
        position.begin()
        found = self._new(pod, lines)
        is_part = query["previous"] == "true" or "limitBytes" in query or "tailLines" in query
        if found and not is_part and has_ended(pod):
            # The answer may have ended early, and no other one follows; see `_copy`.
            found += self._read(pod, {**query, "sinceTime": api_time(position.at)})
        return found

    def _note(self, pod: Json, reason: str) -> None:
        problem = f"the log of pod {name_of(pod)}: {reason}"
        if problem not in self.problems:  # several parts of one log are asked for
            self.problems.append(problem)

    def follow(self, pods: list[Json]) -> bool:
        """Begin to follow the pods that are not followed yet; return whether all have ended."""
        for pod in pods:
            known = self._threads.get(_uid(pod))
            if has_begun(pod) and (known is None or self._goes_on(known, pod)):
                self._cut.discard(_uid(pod))
                thread = threading.Thread(target=self._copy, args=(pod,), daemon=True)
                self._threads[_uid(pod)] = thread
                thread.start()
        if any(thread.is_alive() for thread in self._threads.values()):
            return False
        return all(has_ended(pod) and _uid(pod) not in self._cut for pod in pods)

    def _goes_on(self, thread: threading.Thread, pod: Json) -> bool:
        """Whether a log has more lines than its ended thread has read.

        This is so if the connection was cut, or if the pod runs: its container has restarted.
        """
        return not thread.is_alive() and (is_running(pod) or _uid(pod) in self._cut)

    def take(self) -> list[Line]:
        """Return what the followed pods have printed since the last call."""
        found: list[Line] = []
        with suppress(queue.Empty):
            while True:
                found.append(self._lines.get_nowait())
        return found

    def _copy(self, pod: Json) -> None:
        """Follow a pod's log, in a thread with its own connection.

        An answer that an error of the server or the node has ended looks like the end of the log.
        So the rest is asked for, until an answer has no new line.
        """
        from urllib3.exceptions import HTTPError  # not at the top of the file: the import is slow

        uid, follows, new_lines = _uid(pod), True, 0
        api = Api(self._place.access)
        try:
            while follows or new_lines:
                new_lines = self._copy_answer(api, pod, follows=follows)
                follows = False
                if new_lines:
                    self._tries[uid] = 0
        except (OSError, HTTPError, ValueError) as reason:
            self._tries[uid] += 1
            if has_ended(pod) and self._tries[uid] >= MOST_TRIES:
                self._give_up(pod, str(reason))
            else:
                self._cut.add(uid)
        except ApiError as reason:
            if has_ended(pod):
                self._give_up(pod, str(reason))

    def _copy_answer(self, api: Api, pod: Json, *, follows: bool) -> int:
        """Pass on the new lines of one answer, and return their number.

        Raises:
            ApiError: the server refuses the request.
            OSError, urllib3.exceptions.HTTPError, ValueError: the answer is cut, or there is none;
                another request may succeed.
        """
        position, count = self._position(pod), 0
        position.begin()
        query = {**_whole(pod), **({"follow": "true"} if follows else {})}
        if position.last:
            query["sinceTime"] = api_time(position.at)
        response = api.stream(self._path(pod), query)
        blocks = response.stream(65536)
        if response.status >= 400:
            _refuse(response.status, b"".join(blocks))
        rest = b""
        for block in blocks:
            *lines, rest = (rest + block).split(b"\n")
            count += self._put(self._new(pod, lines))
        return count + self._put(self._new(pod, [rest]))

    def _put(self, lines: list[Line]) -> int:
        for line in lines:
            self._lines.put(line)
        return len(lines)

    def _give_up(self, pod: Json, reason: str) -> None:
        self.problems.append(f"the last lines of pod {name_of(pod)}: {reason}")

    def _new(self, pod: Json, lines: list[bytes]) -> list[Line]:
        """Return the lines that no earlier request has returned."""
        position, found = self._position(pod), list[Line]()
        for text in lines:
            line = parse_api_line(text, node_of(pod))
            if line is not None and position.passes(text.partition(b" ")[0], line.at):
                found.append(line)
        return found

    def _position(self, pod: Json) -> Position:
        return self._positions.setdefault(_uid(pod), Position())

    def _path(self, pod: Json) -> str:
        return log_path(pod_path(self._place.namespace, name_of(pod)))


def _refuse(status: int, body: bytes) -> None:
    """Raise the error for an answer that is not the log: OSError if another try may succeed."""
    try:
        text = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        text = body.decode(errors="replace") or str(status)
    if status >= 500 or status == TOO_MANY:
        raise OSError(text)
    raise ApiError(status, text)


def _whole(pod: Json) -> dict[str, str]:
    """Return the query for the training container; a cluster may add containers to pods."""
    return {"container": container_of(pod), "timestamps": "true"}


def _containers(pod: Json) -> list[Json]:
    return parts(part(pod, "status"), "containerStatuses")


def _uid(pod: Json) -> str:
    return str(pod["metadata"]["uid"])

"""The logs of a run's pods, as long as the API server has them."""

import queue
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from cli.logs.line import Line, api_time, parse_api_line
from cli.stack_outputs import RunPlace
from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import Json, annotation, container_of, label, name_of, part, parts
from infra.kube.paths import PODS, log_path, pod_path
from infra.kube.runs.making_place import ENDED

HEAD_BYTES = 64 << 10
# Of a StatefulSet, of an Indexed Job (a JobSet and a TrainJob have one), of a PyTorchJob or an
# MPIJob, and of a Job of Volcano.
INDEX_LABELS = (
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
)


class PodLogs:
    """All pods of one run."""

    def __init__(self, api: Api, place: RunPlace) -> None:
        self._api, self._place = api, place
        self.problems: list[str] = []  # what could not be read, and why
        self._positions: dict[str, Position] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._cut: set[str] = set()  # pods whose log was not read to its end
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()

    def pods(self) -> list[Json]:
        """The pods that the API server knows now."""
        selector = names.training_selector(self._place.owner)
        return self._api.list(PODS.format(self._place.namespace), selector)

    def now(self) -> float:
        """The time by the cluster's clock, as time.time() has it."""
        return self._api.now().timestamp()

    def there(
        self, pods: list[Json], since: float, known: Callable[[Json], float], tail: int = -1
    ) -> list[Line]:
        """What the pods have printed so far, in the order of time.

        Of a pod whose lines are on the volume, these are only the first ones, some of which may
        have been written before the trainer could keep them, and those that came last.

        Args:
            pods: whose.
            since: from when on lines are wanted, as time.time() has it; 0.0 for all.
            known: the time of the last line of a pod that the volume has; 0.0 where it has none.
            tail: only the last lines of each container; -1 for all.
        """
        found: list[Line] = []
        for pod in filter(has_begun, pods):
            enough = {"tailLines": str(tail)} if tail >= 0 else dict[str, str]()
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
        try:
            text = self._api.text(self._path(pod), {**_whole(pod), **query})
        except (ApiError, UnreachableError) as reason:  # such as of a node that is lost
            if query["previous"] == "false":  # the one before is often removed
                self.problems.append(f"the log of pod {name_of(pod)}: {reason}")
            return []
        lines = text.encode().split(b"\n")
        if "limitBytes" in query:
            lines.pop()  # it was cut off
        self._position(pod).begin()
        return self._new(pod, lines)

    def follow(self, pods: list[Json]) -> bool:
        """Begin to follow the pods that are not followed yet; returns whether all have ended."""
        for pod in pods:
            known = self._threads.get(_uid(pod))
            if has_begun(pod) and (known is None or self._goes_on(known, pod)):
                self._cut.discard(_uid(pod))
                thread = threading.Thread(target=self._copy, args=(pod,), daemon=True)
                self._threads[_uid(pod)] = thread
                thread.start()
        if any(thread.is_alive() for thread in self._threads.values()):
            return False
        return all(
            part(pod, "status").get("phase") in ENDED and _uid(pod) not in self._cut for pod in pods
        )

    def _goes_on(self, thread: threading.Thread, pod: Json) -> bool:
        """Whether a log has more than its thread has read: the connection was cut, or the pod runs
        and has only restarted."""
        is_running = part(pod, "status").get("phase") == "Running"
        return not thread.is_alive() and (is_running or _uid(pod) in self._cut)

    def take(self) -> list[Line]:
        """What the followed pods have printed since the last call."""
        found: list[Line] = []
        with suppress(queue.Empty):
            while True:
                found.append(self._lines.get_nowait())
        return found

    def _copy(self, pod: Json) -> None:
        """In a thread of its own, with its own connection."""
        from urllib3.exceptions import HTTPError  # here, because `./disttrain doctor` does without

        api, position = Api(self._place.access), self._position(pod)
        position.begin()
        query = {**_whole(pod), "follow": "true"}
        if position.last:
            query["sinceTime"] = api_time(position.at)
        try:
            response = api.stream(self._path(pod), query)
            rest = b""
            for block in response.stream(65536):
                *lines, rest = (rest + block).split(b"\n")
                for line in self._new(pod, lines):
                    self._lines.put(line)
            for line in self._new(pod, [rest]):
                self._lines.put(line)
        except (OSError, HTTPError, ValueError):
            self._cut.add(_uid(pod))

    def _new(self, pod: Json, lines: list[bytes]) -> list[Line]:
        """The lines that no request has given before."""
        position, found = self._position(pod), list[Line]()
        for text in lines:
            line = parse_api_line(text, node_of(pod))
            if line is not None and position.passes(text.partition(b" ")[0], line.at):
                found.append(line)
        return found

    def _position(self, pod: Json) -> "Position":
        return self._positions.setdefault(_uid(pod), Position())

    def _path(self, pod: Json) -> str:
        return log_path(pod_path(self._place.namespace, name_of(pod)))


class Position:
    """How far a log was read, so that a later request, which can only name a second, goes on there.

    The node's runtime stamps each line in nanoseconds; lines of one instant are counted.
    """

    def __init__(self) -> None:
        self.last, self.at = "", 0.0
        self._passed, self._met = 0, 0

    def begin(self) -> None:
        """A new request: it may give the lines of the last second again."""
        self._met = 0

    def passes(self, stamp: bytes, at: float) -> bool:
        """Whether a line of that time is new. `at` is the same as time.time() has it."""
        order = order_of(stamp.decode(errors="replace"))
        if order < self.last:
            return False
        if order > self.last:
            self.last, self.at, self._passed, self._met = order, at, 1, 1
            return True
        self._met += 1
        if self._met <= self._passed:
            return False
        self._passed = self._met
        return True


def order_of(stamp: str) -> str:
    """A time of RFC 3339 with nine digits for its fraction, so that texts sort as times. Pure."""
    match = re.fullmatch(r"([^.Z+]*?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", stamp)
    return f"{match[1]}.{(match[2] or '').ljust(9, '0')}" if match else stamp


def node_of(pod: Json) -> int:
    """The rank of the node that a pod is, as trainer/launch/node.py reads it. Pure."""
    for key in INDEX_LABELS:
        index = label(pod, key) or annotation(pod, key)
        if index.isdecimal():
            return int(index)
    owners = {str(owner.get("kind")) for owner in parts(part(pod, "metadata"), "ownerReferences")}
    ordinal = name_of(pod).rpartition("-")[2]  # older clusters have no label for it
    return int(ordinal) if "StatefulSet" in owners and ordinal.isdecimal() else 0


def has_begun(pod: Json) -> bool:
    """Whether a container of the pod may have written something. Pure."""
    return part(pod, "status").get("phase") not in (None, "Pending")


def started_at(pod: Json) -> float:
    """When the pod came to its node, as time.time() has it; 0.0 where it is not known. Pure."""
    text = str(part(pod, "status").get("startTime") or "")
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _whole(pod: Json) -> dict[str, str]:
    """The query for the lines of the container that trains; a cluster may add others to pods."""
    return {"container": container_of(pod), "timestamps": "true"}


def _containers(pod: Json) -> list[Json]:
    return parts(part(pod, "status"), "containerStatuses")


def _uid(pod: Json) -> str:
    return str(pod["metadata"]["uid"])

"""Reads the run's logs on its volume by a short-lived pod, while they are being written."""

import json
import queue
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from cli.logs import volume_program
from cli.logs.line import Line, parse_record, record_time
from cli.logs.selection import Selection
from cli.logs.volume_program import RECENT, WANTED
from cli.stack_outputs import RunPlace
from cli.stack_pod import stack_pod
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import stream
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.files.task_pod import running
from infra.kube.say import shorten
from infra.kube.volumes.keep_claim import CLAIM

TASK = "logs"
PROGRAM_ENDED = "!"  # a kind of this module
START_SECONDS = 45.0  # the nodes have the image; a pod that needs longer has found no free node
DEADLINE_SECONDS = 12 * 3600
MOST_BLOCKS = 256  # the most blocks that have arrived and are not read yet


class NoVolumeError(Exception):
    """The volume cannot be read; the text says why."""


@dataclass(frozen=True)
class Printed:
    """A line that the program in the pod has printed: its kind, and its record if it has one.

    volume_program.py explains the kinds. VolumeReader adds the kind PROGRAM_ENDED, which says that
    the program has ended, for the given reason.
    """

    kind: str
    line: Line | None
    reason: str = ""


class VolumeReader:
    """Reads what the program in the pod prints, one line at a time.

    Args:
        api: the cluster, with connections that nobody else uses.
        path: the path in the API of a pod that mounts the volume.
        arguments: the argument of the program, which `arguments_of` makes.
        container: the name of the pod's container.
    """

    def __init__(self, api: Api, path: str, arguments: str, container: str = TASK) -> None:
        self._api, self._path, self._arguments = api, path, arguments
        self._container = container
        self._blocks: queue.Queue[bytes | str] = queue.Queue(MOST_BLOCKS)
        self._lines: deque[Printed] = deque()
        self._rest = b""
        threading.Thread(target=self._read, daemon=True).start()

    def next(self, seconds: float) -> Printed | None:
        """Return the next line; None if none comes within this time."""
        if not self._lines:
            try:
                self._parse(self._blocks.get(timeout=seconds))
            except queue.Empty:
                return None
        return self._lines.popleft() if self._lines else None

    def _parse(self, block: bytes | str) -> None:
        if isinstance(block, str):
            self._lines.append(Printed(PROGRAM_ENDED, None, block))
            return
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            kind = line[:1].decode(errors="replace")
            record = parse_record(line[1:]) if kind in (WANTED, RECENT) else None
            self._lines.append(Printed(kind, record))

    def _put(self, block: memoryview) -> None:
        self._blocks.put(bytes(block))  # a copy, because the block is valid only during this call

    def _read(self) -> None:
        program = Path(volume_program.__file__).read_text()
        command = ["python3", "-c", program, self._arguments]
        try:
            ended = stream(
                self._api,
                self._path,
                self._container,
                command,
                self._put,
                limit_seconds=DEADLINE_SECONDS,
            )
            reason = ended.stderr.strip().rpartition("\n")[2] if ended.exit_code else ""
        except (ApiError, OSError, UnreachableError, ValueError) as error:
            reason = str(error)
        self._blocks.put(reason)


def arguments_of(run_path: str, selection: Selection, tail: int, follow: bool) -> str:
    """Return the argument of the program in the pod. This function is pure."""
    since = record_time(selection.since) if selection.since else ""
    ranks = sorted(selection.ranks)
    return json.dumps(
        {
            "folder": f"{run_path}/logs",
            "since": since,
            "ranks": ranks,
            "grep": selection.grep.pattern if selection.grep else "",
            "tail": tail,
            "follow": follow,
        }
    )


@contextmanager
def reading(
    api: Api, place: RunPlace, selection: Selection, tail: int, follow: bool
) -> Iterator[VolumeReader]:
    """Start the pod, and remove it after the block, whatever happens.

    Raises:
        NoVolumeError: no pod can be started, or the claim does not exist.
    """
    pod = stack_pod(place, TASK, deadline_seconds=DEADLINE_SECONDS)
    arguments = arguments_of(place.run_path, selection, tail, follow)
    with ExitStack() as stack:
        try:
            # The claim is looked up first, because a pod would wait for a missing claim.
            if api.get(CLAIM.format(place.namespace, place.claim)) is None:
                raise NoVolumeError(f"there is no claim {place.claim}")
            with redirect_stdout(sys.stderr):  # messages about the start are no part of the logs
                path = stack.enter_context(running(api, pod, start_seconds=START_SECONDS))
        except (ApiError, TaskError, UnreachableError) as reason:
            raise NoVolumeError(shorten(str(reason))) from None
        yield VolumeReader(Api(place.access), path, arguments)

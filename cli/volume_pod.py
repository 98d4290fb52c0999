"""A short-lived pod on the volume, and a program of ours that is run in it."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, cast

from cli.place_pod import place_pod
from cli.stack_outputs import VolumePlace
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import Sink, stream
from infra.kube.errors import TaskError, UnreachableError
from infra.kube.files.task_pod import START_SECONDS, running
from infra.kube.say import shorten

POD_SECONDS = 6 * 3600
ASK_SECONDS = 3600.0
SEND_SECONDS = 1800.0
MOST_CUTS = 8
KILLED = (137, 143)  # the pod was ended, or its machine had no memory left


class VolumePod:
    """The pod. Not for several threads: each has its own, see `again`.

    Args:
        api: the cluster.
        path: the pod's.
        container: of the pod.
        program: the text of a Python program, which has only the standard library there.
    """

    def __init__(self, api: Api, path: str, container: str, program: str) -> None:
        self.api, self.path, self.container = api, path, container
        self._program = program

    def again(self, program: str = "") -> "VolumePod":
        """The same pod, with connections of its own; by default with the same program."""
        text = program or self._program
        return VolumePod(Api(self.api.access), self.path, self.container, text)

    def run(self, words: Sequence[str], sink: Sink, limit_seconds: float = SEND_SECONDS) -> int:
        """Run the program; returns its exit status if the program chose it (40 to 49) or 0.

        Raises:
            ApiError: these credentials may not run commands in the pod.
            UnreachableError: the connection was cut.
            TaskError: it failed, with its last words.
        """
        command = ["python3", "-c", self._program, *words]
        ended = stream(
            self.api, self.path, self.container, command, sink, limit_seconds=limit_seconds
        )
        if ended.exit_code in KILLED:
            raise UnreachableError(f"the program was killed in the pod (status {ended.exit_code})")
        if ended.exit_code and not 40 <= ended.exit_code < 50:
            last = ended.stderr.strip().splitlines()[-1:] or ["no error text"]
            raise TaskError(f"the pod cannot do {' '.join(words[:2])}: {shorten(last[0])}")
        return ended.exit_code

    def ask(self, *words: str) -> dict[str, Any]:
        """The JSON object that the program prints; asked again where the connection is cut.

        Raises:
            ApiError: these credentials may not run commands in the pod.
            TaskError: it failed, or the connection is cut again and again.
        """
        cuts = 0
        while True:
            collected = bytearray()
            try:
                self.run(words, collected.extend, ASK_SECONDS)
                return cast(dict[str, Any], json.loads(collected))
            except UnreachableError as reason:
                cuts += 1
                if cuts > MOST_CUTS:
                    raise TaskError(
                        f"the pod does not answer, asked {cuts} times: {reason}"
                    ) from None
                time.sleep(min(cuts, 5))


@contextmanager
def volume_pod(
    place: VolumePlace,
    task: str,
    program: str,
    *,
    read_only: bool = True,
    deadline_seconds: int = POD_SECONDS,
    environment: Mapping[str, str] | None = None,
    start_seconds: float = START_SECONDS,
) -> Iterator[VolumePod]:
    """Start a pod on the volume; it is removed whatever happens.

    What is printed meanwhile goes to standard error, since it is no result.

    Args:
        place: of the volume.
        task: a word for the pod's name and label.
        program: see VolumePod.
        read_only: whether the volume can be changed from there.
        deadline_seconds: after that it ends, whatever became of this program.
        environment: variables of the pod.
        start_seconds: how long it may take to start.

    Raises:
        TaskError: it does not start.
    """
    pod = place_pod(
        place,
        task,
        deadline_seconds=deadline_seconds,
        read_only=read_only,
        environment=environment,
    )
    api = Api(place.access)
    with redirect_stdout(sys.stderr), running(api, pod, start_seconds=start_seconds) as path:
        yield VolumePod(api, path, task, program)

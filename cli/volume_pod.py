"""Starts a short-lived pod that mounts the volume, and runs a program of this project in it."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, cast

from cli.stack_outputs import VolumePlace
from cli.stack_pod import stack_pod
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import Sink, stream
from infra.kube.errors import TaskError, UnreachableError
from infra.kube.files.task_pod import START_SECONDS, running
from infra.kube.say import last_line, shorten

POD_SECONDS = 6 * 3600
ASK_SECONDS = 3600.0
SEND_SECONDS = 1800.0
MOST_CUTS = 8
KILLED = (137, 143)  # exit statuses: the pod was ended, or its machine had no memory left


class VolumePod:
    """A pod in which a program can be run.

    Each thread needs its own object, which `with_own_connections` makes.

    Args:
        api: the cluster.
        path: the path of the pod in the API.
        container: the name of the pod's container.
        program: the text of a Python program; it can use only the standard library.
    """

    def __init__(self, api: Api, path: str, container: str, program: str) -> None:
        self.api, self.path, self.container = api, path, container
        self._program = program

    def with_own_connections(self, program: str = "") -> "VolumePod":
        """Return an object for the same pod with its own connections to the cluster.

        Without an argument it runs the same program.
        """
        text = program or self._program
        return VolumePod(Api(self.api.access), self.path, self.container, text)

    def run(self, words: Sequence[str], sink: Sink, limit_seconds: float = SEND_SECONDS) -> int:
        """Run the program and return its exit status, which is 0 or from 40 to 49.

        The statuses from 40 to 49 are answers of the program; each other one is a failure.

        Args:
            words: the arguments of the program.
            sink: a function that takes each block of the program's standard output.
            limit_seconds: the longest time that the program may take.

        Raises:
            ApiError: these credentials may not run commands in the pod.
            UnreachableError: the connection was cut, the program was killed, or it took too long.
            TaskError: the program failed; the text has the last line of its standard error.
        """
        command = ["python3", "-c", self._program, *words]
        ended = stream(
            self.api, self.path, self.container, command, sink, limit_seconds=limit_seconds
        )
        if ended.exit_code in KILLED:
            raise UnreachableError(f"the program was killed in the pod (status {ended.exit_code})")
        if ended.exit_code and not 40 <= ended.exit_code < 50:
            said = shorten(last_line(ended.stderr))
            raise TaskError(f"the pod cannot do {' '.join(words[:2])}: {said}")
        return ended.exit_code

    def ask(self, *words: str) -> dict[str, Any]:
        """Run the program and return the JSON object that it prints.

        If the connection is cut, the program is run again.

        Raises:
            ApiError: these credentials may not run commands in the pod.
            TaskError: the program failed, or the connection was cut more than MOST_CUTS times.
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
    """Start a pod that mounts the volume, and remove it after the block, whatever happens.

    While the block runs, all that is printed to standard output goes to standard error, since it is
    not a result of the command.

    Args:
        place: the place of the volume.
        task: a word for the pod's name and label.
        program: the text of the program, as for VolumePod.
        read_only: True if the pod cannot change the volume.
        deadline_seconds: the longest time that the pod runs, even if this program was killed.
        environment: the environment variables of the pod.
        start_seconds: the longest time that the pod may take to start.

    Raises:
        TaskError: the pod does not start.
    """
    pod = stack_pod(
        place,
        task,
        deadline_seconds=deadline_seconds,
        read_only=read_only,
        environment=environment,
    )
    api = Api(place.access)
    with redirect_stdout(sys.stderr), running(api, pod, start_seconds=start_seconds) as path:
        yield VolumePod(api, path, task, program)

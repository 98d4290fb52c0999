"""Reads the events of a run from the volume, by a short-lived pod."""

import base64
import gzip
import zlib
from io import BytesIO
from pathlib import Path, PurePosixPath

from cli.goodput import pod_program
from cli.stack_outputs import RunPlace
from cli.stack_pod import stack_pod
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import execute
from infra.kube.errors import TaskError
from infra.kube.files.task_pod import START_SECONDS, running
from infra.kube.say import shorten
from trainer.events.event import Events, event_file

TASK = "goodput"
READ_SECONDS = 300  # for the events, once the pod runs; the file of a long run may be large
# The pod ends after this time, even if this program was killed.
LIMIT_SECONDS = START_SECONDS + READ_SECONDS
PROGRAM = Path(pod_program.__file__).read_text()


def fetch_events(api: Api, place: RunPlace) -> Events:
    """Return the events of the run's node 0, which cover all its starts.

    Raises:
        TaskError: the run has no events yet, or they cannot be read.
        ApiError: the cluster refuses the pod.
        UnreachableError: the cluster does not answer, or the connection was cut.
    """
    pod = stack_pod(place, TASK, deadline_seconds=LIMIT_SECONDS)
    with running(api, pod) as path:
        return read_events(api, path, TASK, place.run_path)


def read_events(api: Api, pod_path: str, container: str, run_path: str) -> Events:
    """Read the events in a pod that already runs; it raises the errors of `fetch_events`.

    Args:
        api: the cluster.
        pod_path: the path in the API of a pod that mounts the volume.
        container: the name of the pod's container.
        run_path: the run's folder, as the pod sees it.
    """
    file = str(event_file(Path(PurePosixPath(run_path)), 0))
    ended = execute(api, pod_path, container, ["python3", "-c", PROGRAM, file])
    if ended.exit_code == pod_program.NO_FILE:
        raise TaskError(
            f"{file} does not exist on the volume: a run writes it from its first start on. "
            "`./disttrain status` says what the run waits for"
        )
    if ended.exit_code:
        words = ended.stderr.strip(" .\n")
        raise TaskError(f"{file} cannot be read: {shorten(words, 300)}")
    try:
        return unpacked(ended.stdout)
    except ValueError as reason:
        raise TaskError(f"{file} did not arrive whole ({reason}): try again") from None


def unpacked(text: str) -> Events:
    """Return the events in a word that `pod_program.packed` has made.

    They stay compressed in memory; each iteration decompresses them one after another.

    Raises:
        ValueError: the word is incomplete.
    """
    content = base64.b64decode(text, validate=True)
    try:
        if not content:
            raise EOFError("it is empty")  # an empty gzip file would count as one without events
        return Events(lambda: gzip.open(BytesIO(content)))
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(str(error)) from None

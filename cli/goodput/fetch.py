"""Brings the events of a run from the volume, by a pod that lives for that long."""

from pathlib import Path, PurePosixPath

from cli.goodput import reader
from cli.place_pod import place_pod
from cli.stack_outputs import RunPlace
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import execute
from infra.kube.errors import TaskError
from infra.kube.files.task_pod import running
from infra.kube.say import shorten
from trainer.events.event import event_file

TASK = "goodput"
LIMIT_SECONDS = 300  # after that the pod ends by itself, whatever became of this program
PROGRAM = Path(reader.__file__).read_text()


def fetch_events(api: Api, place: RunPlace) -> bytes:
    """The event file of the run's node 0, which tells of all its starts.

    Raises:
        TaskError: the run has no events yet, or they cannot be read.
        ApiError: the cluster refuses the pod.
        UnreachableError: it does not answer, or the connection was cut.
    """
    pod = place_pod(place, TASK, deadline_seconds=LIMIT_SECONDS)
    with running(api, pod) as path:
        return read_events(api, path, TASK, place.run_path)


def read_events(api: Api, pod_path: str, container: str, run_path: str) -> bytes:
    """Read the events in a pod that runs already; raises what `fetch_events` raises.

    Args:
        api: the cluster.
        pod_path: of a pod on the volume.
        container: of that pod.
        run_path: the run's folder, as the pod sees it.
    """
    file = str(event_file(Path(PurePosixPath(run_path)), 0))
    ended = execute(api, pod_path, container, ["python3", "-c", PROGRAM, file])
    if ended.exit_code == reader.NO_FILE:
        raise TaskError(
            f"{file} does not exist on the volume: a run writes it from its first start on. "
            "`./disttrain status` says what the run waits for"
        )
    if ended.exit_code:
        words = ended.stderr.strip(" .\n")
        raise TaskError(f"{file} cannot be read: {shorten(words, 300)}")
    try:
        return reader.unpacked(ended.stdout)
    except ValueError as reason:
        raise TaskError(f"{file} did not arrive whole ({reason}): try again") from None

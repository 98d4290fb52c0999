"""Asks the cluster and the volume for the page, with the functions of the other commands.

The API server is asked for everything that needs no pod. The rest is read by one pod
(pod_keeper.py).
"""

from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from cli.dashboard import sample_program
from cli.dashboard.details import goodput_of, log_of
from cli.dashboard.pod_keeper import PodKeeper
from cli.dashboard.run_rows import Row
from cli.goodput.run_events import read_events
from cli.logs.command import chain_rest
from cli.logs.line import Line
from cli.logs.merged import Merged
from cli.logs.pod_logs import PodLogs
from cli.logs.selection import Selection
from cli.logs.volume import VolumeReader, arguments_of
from cli.runs.in_use import CONFIGS, Users, runs_of_owners
from cli.runs.program import PROGRAM as RUNS_PROGRAM
from cli.runs.table import Run, parse_runs
from cli.stack_outputs import RunPlace, VolumePlace, asker_of
from cli.status.ended import with_ends
from cli.status.snapshot import Snapshot, take_snapshot
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import stream
from infra.kube.errors import TaskError
from infra.kube.record import COLLECTION
from infra.kube.say import shorten

PATIENCE_SECONDS = 10.0  # how long a request is tried again; short, because a user waits
LINES = 400  # how many last lines of a run's log are shown
STRETCHES = 300  # the stretches of steps in a curve; each has at most two points
NEW_TOKENS = 200
SAMPLE_TRIES = 3
MOST_SAMPLE_BYTES = 1 << 20
SAMPLE_PROGRAM = Path(sample_program.__file__).read_text()


@dataclass(frozen=True)
class Cluster:
    """What the API server knows.

    Args:
        snapshot: the platform and the runs that have a record.
        owners: for each owner the names of its runs.
        ahead_seconds: by how many seconds the API server's clock is ahead of this machine's.
    """

    snapshot: Snapshot
    owners: dict[str, set[str]]
    ahead_seconds: float


class Queries:
    """The queries of the page. Each method raises one of `kept.EXPECTED` if its query fails.

    Args:
        place: the place of the volume.
        keeper: keeps the pod that mounts the volume.
    """

    def __init__(self, place: VolumePlace, keeper: PodKeeper) -> None:
        self._place, self._keeper = place, keeper

    def cluster(self) -> Cluster:
        """Read the platform and the runs that have a record."""
        api = self._api()
        namespace = self._place.namespace
        seen = with_ends(api, take_snapshot(api, namespace), namespace, asker_of(self._place))
        owners = runs_of_owners(api.list(COLLECTION.format(self._place.namespace), CONFIGS))
        ahead = api.now() - datetime.now().astimezone()
        return Cluster(seen, owners, ahead.total_seconds())

    def volume(self) -> list[Run]:
        """Read what is known of all runs on the volume."""
        with self._keeper.using() as pod:
            own = pod.with_own_connections(RUNS_PROGRAM)
            return parse_runs(own.ask("list", self._place.runs_path), Users())

    def curves(self, run_name: str) -> dict[str, Any]:
        """Read (step, value) pairs of the loss, the validation loss and the tokens per second."""
        with self._keeper.using() as pod:
            own = pod.with_own_connections(RUNS_PROGRAM)
            return own.ask("curves", self._place.runs_path, run_name, str(STRETCHES))

    def goodput(self, run_name: str) -> dict[str, Any]:
        """Read where the time of a run went."""
        with self._keeper.using() as pod:
            events = read_events(self._api(), pod.path, pod.container, self._path(run_name))
        return goodput_of(events)

    def logs(self, row: Row) -> dict[str, Any]:
        """Read the last lines of a run, from the volume and from its pods."""
        notes: list[str] = []
        place = self._run_place(row)
        with ExitStack() as stack:
            volume = None
            try:
                volume = self._reader(stack, row)
            except TaskError as reason:
                notes.append(
                    f"The logs on the volume cannot be read ({reason}): these are the lines that "
                    "the API server still has, without ranks."
                )
            merged = Merged(PodLogs(self._api(), place), volume, notes.append)
            lines = chain_rest(merged.history(0.0, LINES), merged)
            found: deque[Line] = deque(lines, maxlen=LINES)
        return log_of(found, notes)

    def _reader(self, stack: ExitStack, row: Row) -> VolumeReader | None:
        if not row.run_name:
            return None
        pod = stack.enter_context(self._keeper.using())
        arguments = arguments_of(self._path(row.run_name), Selection(), LINES, follow=False)
        return VolumeReader(Api(self._place.access), pod.path, arguments, pod.container)

    def sample(self, run_name: str) -> dict[str, Any]:
        """Let the trainer generate text with the newest checkpoint of a run.

        A run that saves often may remove that checkpoint while it is read. Then it is tried again.
        """
        words = ["--run-dir", self._path(run_name), "--max-new-tokens", str(NEW_TOKENS)]
        command = ["python3", "-c", SAMPLE_PROGRAM, "python", "-m", "trainer", "sample", *words]
        said = ""
        with self._keeper.using() as pod:
            for _ in range(SAMPLE_TRIES):
                collected = bytearray()
                take = partial(_take, collected)
                ended = stream(Api(self._place.access), pod.path, pod.container, command, take)
                if not ended.exit_code:
                    text = collected.decode(errors="replace").strip("\n")
                    return {"text": text, "tokens": NEW_TOKENS}
                said = (ended.stderr.strip(" .\n").splitlines() or ["no error text"])[-1]
        raise TaskError(f"the trainer could not write text: {shorten(said, 300)}")

    def _api(self) -> Api:
        """Return new connections, because each query runs in its own thread."""
        return Api(self._place.access, PATIENCE_SECONDS)

    def _path(self, run_name: str) -> str:
        return f"{self._place.runs_path}/{run_name}"

    def _run_place(self, row: Row) -> RunPlace:
        return RunPlace(
            access=self._place.access,
            namespace=row.namespace or self._place.namespace,
            owner=row.owner,  # empty for a run that is only on the volume: no pod has such a label
            image=self._place.image,
            run_path=self._path(row.run_name),
            workload=row.workload,
            claim=self._place.claim,
        )


def _take(collected: bytearray, block: memoryview) -> None:
    collected.extend(block[: max(0, MOST_SAMPLE_BYTES - len(collected))])

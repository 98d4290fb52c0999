"""`disttrain stop`: a run saves a checkpoint, and its pods are removed until it is resumed."""

import argparse
import threading
import time

from cli.endings import end_in_order
from cli.followed_log import AWAY_SECONDS
from cli.stack_option import add_stack_of_run
from cli.stack_outputs import asker_of, run_place
from cli.status.progress import Progress, read_progress
from infra.kube import names
from infra.kube.api_server.api import NOT_NOW, Api
from infra.kube.objects import container_of, is_running, name_of
from infra.kube.paths import PODS, log_path, pod_path
from infra.kube.record import Record
from infra.kube.runs.steer import find_record, note_saved_step, stop

LINES = 100  # how many earlier log lines are read; usually one names the last checkpoint
LOG_SECONDS = 5  # the longest wait for the log to begin, or for its rest once the pod has ended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain stop`."""
    add_stack_of_run(parser)


def run(arguments: argparse.Namespace) -> int:
    """Stop the run. The exit status is 0: the run is stopped, or there was nothing to stop.

    Raises:
        ValueError: the stack has no run.
        TaskError: the workload of the run is gone, or its pods do not end.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    place = run_place(arguments.stack)
    api = Api(place.access)
    record = find_record(api, place.namespace, place.owner)
    last = LastLines(api, record)
    last.wait_until_followed()
    nothing_to_do = stop(api, record, asker_of(place))
    if nothing_to_do:
        print(nothing_to_do)
        return 0
    progress = last.progress()
    # Printed before the note is written: the run is stopped even if the note fails.
    print(stopped(record, progress), flush=True)
    if progress.saved_step is not None:
        note_saved_step(api, record, progress.saved_step)
    return 0


def stopped(record: Record, progress: Progress) -> str:
    """Return the text for the user, from the progress that the log has shown.

    This function is pure.
    """
    saved, step = progress.saved_step, progress.step
    if saved is None:
        what = "what it has saved was not seen"
    elif step is not None and step > saved:
        what = f"its last checkpoint is of step {saved}, and its steps up to {step} are repeated"
    else:
        what = f"it has saved step {saved}"
    name = record.stack.rpartition("/")[2]
    return (
        f"{record.workload} is stopped; {what}. It goes on with: ./disttrain resume --stack {name}"
    )


class LastLines:
    """Follows the log of the run's first pod in a thread, because an ended pod is deleted.

    If the connection is cut, the last lines are read again.
    """

    def __init__(self, api: Api, record: Record) -> None:
        selector = names.training_selector(record.owner)
        pods = sorted(api.list(PODS.format(record.namespace), selector), key=name_of)
        running = [pod for pod in pods if is_running(pod)]
        self._text = bytearray()
        self._access = api.access
        self._path = pod_path(record.namespace, name_of(running[0])) if running else ""
        self._container = container_of(running[0]) if running else ""
        self._is_followed = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait_until_followed(self, seconds: float = LOG_SECONDS) -> None:
        """Wait until the log is being read, at most this long.

        A pod may be gone a moment after it was told to end, so the stop has to wait for this.
        """
        self._is_followed.wait(seconds)

    def progress(self, seconds: float = LOG_SECONDS) -> Progress:
        """Wait at most this long for the rest of the log, and return how far the run was."""
        self._thread.join(seconds)
        return read_progress(bytes(self._text).decode(errors="replace"))

    def _follow(self) -> None:
        try:
            self._read()
        finally:
            self._is_followed.set()  # also after an error, so that nobody waits in vain

    def _read(self) -> None:
        from urllib3.exceptions import HTTPError  # not at the top of the file: the import is slow

        if not self._path:
            return
        api, end = Api(self._access), time.monotonic() + AWAY_SECONDS
        query = {"container": self._container, "follow": "true", "tailLines": str(LINES)}
        query["timestamps"] = "true"
        # Without the log, the command says that no saved step was seen. The run is stopped anyway.
        while time.monotonic() < end:
            try:
                response = api.stream(log_path(self._path), query)
                if response.status in NOT_NOW:
                    response.close()
                    raise OSError
                self._is_followed.set()
                if response.status >= 300:  # the pod is gone
                    return
                for block in response.stream(4096):
                    self._text.extend(block)
                    end = time.monotonic() + AWAY_SECONDS
                return
            except (OSError, HTTPError):
                self._text.extend(b"\n")  # the last line may be incomplete
            except ValueError:  # the kubeconfig can no longer be used
                return
            time.sleep(1)

"""The check of `disttrain verify --restart`: after the loss of a pod, the run makes steps again."""

import sys
import time
from contextlib import redirect_stdout

from cli.check import Result
from cli.stack_outputs import RunPlace
from cli.status.judge import GOES_ON
from cli.status.snapshot import see_run
from cli.verify.evidence import result
from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.objects import is_running, name_of
from infra.kube.paths import pod_path
from infra.kube.runs.steer import find_record
from infra.kube.waiting import wait_for

LIMIT_SECONDS = 900


def restart(api: Api, place: RunPlace) -> Result:
    """Delete the run's first running pod, and wait until the run makes steps without it.

    Raises:
        ApiError, UnreachableError: the cluster refuses or does not answer.
        TaskError: there is no such run.
    """
    record = find_record(api, place.namespace, place.owner)
    before, pods = see_run(api, record)
    if before.state not in GOES_ON:
        return result("restart", "not checked", f"the run is {before.state}, not training")
    running = [pod for pod in pods if is_running(pod)]
    if not running:
        return result("restart", "not checked", "no pod of the run is running at this moment")
    first = running[0]
    uid = first["metadata"]["uid"]
    begin = time.monotonic()
    path = pod_path(place.namespace, name_of(first))
    api.delete(path, {"preconditions": {"uid": uid}})

    def ask() -> str:
        now, pods = see_run(api, record)
        if any(pod["metadata"]["uid"] == uid for pod in pods):
            return f"pod {name_of(first)} ends"
        done = now.state in (*GOES_ON, "finished")
        return "" if done else f"{now.state}: {now.detail}"

    try:
        with redirect_stdout(sys.stderr):  # messages about the waiting are no result
            limit = record.grace_seconds + LIMIT_SECONDS
            wait_for("the first step after the restart", ask, limit)
    except TaskError as reason:
        return result("restart", "error", str(reason), "./disttrain logs")
    after, _ = see_run(api, record)
    seconds = time.monotonic() - begin
    said = (
        f"pod {name_of(first)} was deleted at step {before.progress.step}; the run is "
        f"{after.state} at step {after.progress.step} after {seconds:.0f} s"
    )
    return result("restart", "ok", said)

"""`python -m cli.verify.at_up verify create`: `pulumi up` runs it with the setting `verify: after`.

Its job is JSON on standard input, as for the programs of infra.kube.
"""

import sys
import time
from collections.abc import Callable

from cli.check import Result
from cli.report import Report
from cli.stack_outputs import RunPlace
from cli.verify.gather import gather
from cli.verify.judge import judge
from infra.kube.__main__ import run_task
from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.say import say

PATIENCE_SECONDS = 180.0
PAUSE_SECONDS = 3.0
NOT_BEGUN = ("queued", "stopped")  # states in which `pulumi up` succeeds without a first step


class _WaitsError(Exception):
    """The run makes no steps, because its user has stopped it or it is queued.

    The text is its state.
    """


def create(job: Job, api: Api) -> None:
    """Check the run again and again, until no check finds an error.

    Checks that cannot be made yet are shown, and are no errors. A run that waits in its queue, or
    that ./disttrain stop has stopped, is not checked.

    Raises:
        TaskError: a check still finds an error after PATIENCE_SECONDS.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    place = RunPlace(
        access=job.access, namespace=job.namespace, owner=job.owner, **job.mapping("place")
    )

    def check() -> list[Result]:
        seen = gather(api, place)
        if seen.status.state in NOT_BEGUN:
            raise _WaitsError(seen.status.state)
        return judge(seen)

    try:
        report = patiently(check, place.run_path.rpartition("/")[2])
    except _WaitsError as state:
        say(f"verify: after, and the run is {state}. Once it trains: ./disttrain verify")
        return
    say(report.text(everything=True))
    if report.exit_code("error"):
        raise TaskError(
            "verify: after, and a point is wrong. The run itself continues. Fix the problem and "
            "run pulumi up again, or check again with ./disttrain verify"
        )


def patiently(check: Callable[[], list[Result]], run: str) -> Report:
    """Return the first report without an error, or the last one after PATIENCE_SECONDS.

    A run that has just made its first step may not have written its first line yet.
    """
    begin = time.monotonic()
    while True:
        results = check()
        seconds = time.monotonic() - begin
        report = Report(f"run {run}", results, seconds, title="verify")
        if not report.exit_code("error") or seconds >= PATIENCE_SECONDS:
            return report
        time.sleep(PAUSE_SECONDS)


def main(words: list[str]) -> int:
    """Run the command and return the exit status. `delete` does nothing, as nothing was made."""
    if words == ["verify", "delete"]:
        return 0
    assert words == ["verify", "create"]
    return run_task(create)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
